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

static void write_one(FILE *out, const struct km_comm *c, const char *name, const char *state)
{
	if (is_empty(c))
		return;
	fprintf(out, "# %s: %s\n", name, state);
	for (int k = 0; k < KM_NCALLS; k++) {
		const struct km_tally *t = &c->tally[k];

		if (t->calls)
			fprintf(out, "%-20s %10ld calls %10ld on Kolo %14.0f bytes %10.3f s\n",
				km_call_name((enum km_call)k), t->calls, t->taken, t->bytes,
				(double)t->ns / 1e9);
	}
}

static void write_all(FILE *out, const struct km_comms *all)
{
	char name[MPI_MAX_OBJECT_NAME + 64], state[256];

	fprintf(out, "# kolo_mpi: collectives of rank 0, KOLO_MPI=%s\n",
		km_mode == KM_COUNT ? "count" : "on");
	for (const struct km_comm *c = all->first; c; c = c->next) {
		snprintf(name, sizeof(name), "%s, %d ranks", *c->name ? c->name : "a communicator",
			 c->size);
		if (c->kolo)
			snprintf(state, sizeof(state), "on Kolo");
		else if (c->why)
			snprintf(state, sizeof(state), "left to MPI: %s", c->why);
		else if (km_mode == KM_COUNT)
			snprintf(state, sizeof(state), "counted");
		else
			snprintf(state, sizeof(state), "left to MPI: no more than %ld collectives",
				 km_calls);
		write_one(out, c, name, state);
	}
	snprintf(name, sizeof(name), "%ld communicators", all->nfreed);
	write_one(out, &all->freed, name, "freed");
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
