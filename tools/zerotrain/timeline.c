/* Notes actions, and writes those of all ranks as trace events: a JSON object of "traceEvents" that
 * browsers' trace viewers read. A row is a rank. */
#include "tools/zerotrain/timeline.h"
#include "tools/common/tool.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int refuse_file(const struct timeline *t)
{
	fprintf(stderr, "zerotrain: --timeline %s: cannot be written: %s\n", t->path,
		strerror(errno));
	return EXIT_FAILED;
}

int timeline_open(struct timeline *t, int room, int rank, const char *path)
{
	t->path = path;
	t->room = room;
	t->at = calloc((size_t)room, sizeof(*t->at));
	if (!t->at) {
		fprintf(stderr, "zerotrain: rank %d: --timeline: %d actions: out of memory\n", rank,
			room);
		return EXIT_FAILED;
	}
	if (rank == 0 && !(t->file = fopen(path, "w")))
		return refuse_file(t);
	return EXIT_GOOD;
}

void timeline_close(struct timeline *t)
{
	if (t->file)
		fclose(t->file);
	free(t->at);
}

void timeline_begin(struct timeline *t)
{
	t->n = 0;
	t->zero = tool_now_us();
}

void timeline_note(struct timeline *t, const struct kolo_action *a, double began, double ended)
{
	if (t->at && t->n < t->room)
		t->at[t->n++] = (struct moment){ .type = (int)a->type,
						 .part = a->part,
						 .micro = a->micro,
						 .began = began,
						 .ended = ended };
}

/* ---- File ------------------------------------------------------------------------------------ */

static const char *name_of(int type)
{
	switch (type) {
	case KOLO_ACTION_FORWARD: return "F";
	case KOLO_ACTION_BACKWARD: return "B";
	case KOLO_ACTION_BACKWARD_INPUT: return "I";
	default: return "W";
	}
}

static int write_file(struct timeline *t, const struct moment *all, size_t n)
{
	FILE *f = t->file;
	bool good;

	fprintf(f, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
	for (size_t i = 0; i < n; i++)
		fprintf(f,
			"%s\n{\"name\": \"%s%d\", \"cat\": \"part %d\", \"ph\": \"X\", \"ts\": %.1f, \"dur\": %.1f, \"pid\": %d, \"tid\": %d}",
			i ? "," : "", name_of(all[i].type), all[i].micro, all[i].part, all[i].began,
			all[i].ended - all[i].began, all[i].stage, all[i].rank);
	fprintf(f, "\n]}\n");
	good = !ferror(f);
	good = fclose(f) == 0 && good;
	t->file = NULL;
	return good ? EXIT_GOOD : refuse_file(t);
}

/* What each rank has, on rank 0: counts of bytes, and all moments behind each other. */
static int collect(const struct timeline *t, struct kolo_comm *comm, size_t *counts,
		   struct moment **all, size_t *n)
{
	size_t len = (size_t)t->n * sizeof(*t->at), sum = 0;
	int rc = kolo_all_gather(comm, &len, counts, sizeof(len), KOLO_U8, NULL);

	for (int i = 0; i < kolo_comm_nranks(comm); i++)
		sum += counts[i];
	*n = sum / sizeof(**all);
	*all = malloc(sum ? sum : 1);
	if (rc == 0 && !*all)
		rc = kolo_error_set(KOLO_ENOMEM, "a timeline of %zu bytes: out of memory", sum);
	return rc ? rc : kolo_gather_v(comm, t->at, len, *all, counts, KOLO_U8, 0, NULL);
}

/* When time begins in the file: rank 0's update, if its clock is this host's. */
struct clock {
	char boot[40]; /* which start of which host */
	double zero;
};

static void read_clock(const struct timeline *t, struct clock *out)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");

	*out = (struct clock){ .zero = t->zero };
	if (f && !fgets(out->boot, sizeof(out->boot), f))
		out->boot[0] = 0;
	if (f)
		fclose(f);
}

static int find_zero(const struct timeline *t, struct kolo_comm *comm, double *zero)
{
	struct clock own, first;
	int rc;

	read_clock(t, &own);
	first = own;
	rc = kolo_broadcast(comm, &first, &first, sizeof(first), KOLO_U8, 0, NULL);
	*zero = strcmp(own.boot, first.boot) == 0 ? first.zero : own.zero;
	return rc;
}

int timeline_write(struct timeline *t, struct kolo_comm *comm, int stage)
{
	size_t *counts = calloc((size_t)kolo_comm_nranks(comm), sizeof(*counts)), n = 0;
	int rank = kolo_comm_rank(comm), rc = KOLO_ENOMEM;
	struct moment *all = NULL;
	double zero = 0;

	if (counts)
		rc = find_zero(t, comm, &zero);
	for (int i = 0; i < t->n; i++) {
		t->at[i].stage = stage;
		t->at[i].rank = rank;
		t->at[i].began -= zero;
		t->at[i].ended -= zero;
	}
	if (rc == 0)
		rc = collect(t, comm, counts, &all, &n);
	if (rc < 0)
		fprintf(stderr, "zerotrain: rank %d: --timeline: %s\n", rank,
			counts ? kolo_last_error() : "out of memory");
	else if (rank == 0)
		rc = write_file(t, all, n);
	free(counts);
	free(all);
	return rc < 0 ? EXIT_FAILED : rc;
}
