/* What was called, and what Kolo did of it (km_report). */
#include "tools/mpi/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool km_timed;
static const char *where; /* NULL: no report; "-": the error stream; a file's name */

void km_report_open(void)
{
	const char *wish = getenv("KOLO_MPI_REPORT");

	where = wish && *wish ? wish : km_mode == KM_COUNT ? "-" : NULL;
	km_timed = where && km_mode != KM_OFF;
}

const char *km_call_name(enum km_call call)
{
	static const char *const names[KM_NCALLS] = {
		[KM_BARRIER] = "Barrier",
		[KM_BCAST] = "Bcast",
		[KM_REDUCE] = "Reduce",
		[KM_ALLREDUCE] = "Allreduce",
		[KM_REDUCE_SCATTER] = "Reduce_scatter",
		[KM_REDUCE_SCATTER_BLOCK] = "Reduce_scatter_block",
		[KM_ALLGATHER] = "Allgather",
		[KM_ALLGATHERV] = "Allgatherv",
		[KM_GATHER] = "Gather",
		[KM_GATHERV] = "Gatherv",
		[KM_SCATTER] = "Scatter",
		[KM_SCATTERV] = "Scatterv",
		[KM_ALLTOALL] = "Alltoall",
		[KM_ALLTOALLV] = "Alltoallv",
	};

	return names[call];
}

int64_t km_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool is_empty(const struct km_comm *c)
{
	for (int k = 0; k < KM_NCALLS; k++)
		if (c->tally[k].calls)
			return false;
	return true;
}

static void write_calls(FILE *out, const struct km_comm *c)
{
	for (int k = 0; k < KM_NCALLS; k++) {
		const struct km_tally *t = &c->tally[k];

		if (t->calls == 0)
			continue;
		fprintf(out, "%-20s %10ld calls %10ld on Kolo %14.0f bytes %10.3f s",
			km_call_name((enum km_call)k), t->calls, t->taken, t->bytes,
			(double)t->ns / 1e9);
		if (t->could < t->calls)
			fprintf(out, " (%ld of a type or operation that Kolo leaves to MPI)",
				t->calls - t->could);
		fprintf(out, "\n");
	}
}

static void write_one(FILE *out, const struct km_comm *c)
{
	if (is_empty(c))
		return;
	if (c->nfreed)
		fprintf(out, "# %ld of %d ranks, freed: ", c->nfreed, c->size);
	else
		fprintf(out, "# %s, %d ranks: ", *c->name ? c->name : "a communicator", c->size);
	if (c->joined)
		fprintf(out, "on Kolo\n");
	else if (c->why)
		fprintf(out, "left to MPI: %s\n", c->why);
	else
		fprintf(out, "%s\n",
			km_mode == KM_COUNT ? "counted" : "left to MPI: too little was done");
	write_calls(out, c);
}

static void write_all(FILE *out, const struct km_comms *all)
{
	fprintf(out, "# kolo_mpi: collectives of rank 0, KOLO_MPI=%s\n",
		km_mode == KM_COUNT ? "count" : "on");
	for (const struct km_comm *c = all->first; c; c = c->next)
		write_one(out, c);
	for (const struct km_comm *c = all->freed; c; c = c->next)
		write_one(out, c);
}

void km_report(void)
{
	FILE *out;
	int rank;

	if (!where || km_mode == KM_OFF ||
	    km_real.Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS || rank)
		return;
	out = strcmp(where, "-") == 0 ? stderr : fopen(where, "w");
	if (!out) {
		fprintf(stderr, "kolo_mpi: KOLO_MPI_REPORT: ");
		perror(where);
		return;
	}
	write_all(out, km_comms_lock());
	km_comms_unlock();
	if (out != stderr && fclose(out) != 0)
		perror(where);
}
