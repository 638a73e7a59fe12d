/* The bubble of each pipeline schedule, measured beside its formula. Stages sleep instead of
 * computing, so any number of them fits on two cores: forward, backward for inputs and backward for
 * weights UNIT ms each, divided over the chunks. Boundary tensors have ELEMENTS floats. The time of
 * the slowest stage, a median of ROUNDS batches; bubble = time / busy - 1, by the formula with
 * messages that take no time.
 *
 * usage: ringrun -n STAGES zero_pipeline [MICROS] */
#include "perf/perf.h"

#include <kolo/kolo_parallel.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { UNIT_MS = 40, ELEMENTS = 64 << 10, ROUNDS = 5 };

static void check(int rc)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "zero_pipeline: %s\n", kolo_last_error());
	exit(1);
}

/* arg: the milliseconds of a unit of this schedule. */
static int work(void *arg, const struct kolo_action *a, const struct kolo_pipeline_tensors *t)
{
	double ms = *(const double *)arg * (a->type == KOLO_ACTION_BACKWARD ? 2 : 1);

	(void)t;
	nanosleep(&(struct timespec){ .tv_sec = (time_t)(ms / 1e3),
				      .tv_nsec = (long)(ms * 1e6) % 1000000000 },
		  NULL);
	return 0;
}

static double batch(struct kolo_comm *comm, struct kolo_pipeline_executor *e, double *unit)
{
	int64_t begin;
	double ms;

	check(kolo_barrier(comm, NULL));
	begin = ko_now_ns();
	check(kolo_pipeline_run(e, work, unit));
	ms = (double)(ko_now_ns() - begin) * 1e-6;
	check(kolo_all_reduce(comm, &ms, &ms, 1, KOLO_F64, KOLO_MAX, NULL));
	return ms;
}

static void measure(struct kolo_comm *comm, enum kolo_pipeline_schedule schedule, int chunks,
		    int micros)
{
	double unit = (double)UNIT_MS / chunks, ms[ROUNDS];
	const struct kolo_pipeline_times times = { unit, unit, unit, 0, { 0 } };
	int stages = kolo_comm_nranks(comm);
	struct kolo_pipeline_executor *e;
	struct kolo_pipeline_figures f;
	struct kolo_pipeline *p;
	double median;

	check(kolo_pipeline_create(schedule, stages, chunks, micros, &p));
	check(kolo_pipeline_estimate(p, &times, &f));
	check(kolo_pipeline_executor_create(comm, p, ELEMENTS, KOLO_F32, &e));
	for (int i = -1; i < ROUNDS; i++)
		ms[i < 0 ? 0 : i] = batch(comm, e, &unit);
	median = perf_median(ms, ROUNDS);
	if (kolo_comm_rank(comm) == 0)
		printf("%-12s %6d  %8.1f  %8.1f  %7.3f  %7.3f  %6.3f\n",
		       kolo_pipeline_schedule_name(schedule), chunks, f.seconds, median,
		       f.bubble_ratio, median / f.busy - 1, median / f.seconds);
	kolo_pipeline_executor_destroy(e);
	kolo_pipeline_destroy(p);
}

int main(int argc, char **argv)
{
	struct kolo_comm *comm;
	int micros;

	check(kolo_comm_create(NULL, &comm));
	micros = argc > 1 ? atoi(argv[1]) : 2 * kolo_comm_nranks(comm);
	if (kolo_comm_rank(comm) == 0)
		printf("# %d stages, %d micro-batches, %d floats in a boundary tensor; times in ms\n"
		       "# schedule   chunks   formula  measured   bubble: formula, measured  time / formula\n",
		       kolo_comm_nranks(comm), micros, ELEMENTS);
	for (int s = 0; s <= KOLO_PIPELINE_ZB_H1; s++)
		for (int chunks = 1; chunks <= (s == KOLO_PIPELINE_INTERLEAVED ? 2 : 1); chunks++)
			measure(comm, (enum kolo_pipeline_schedule)s, chunks, micros);
	kolo_comm_destroy(comm);
	return 0;
}
