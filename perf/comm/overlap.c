/* How much of communication a queue hides behind other work: two all-reduces of 32 MiB take T; then
 * both are put into a queue, the caller sleeps for T, and waits. With everything hidden that takes
 * T, with nothing 2 T. The slowest rank counts; the results must have the same bits.
 *
 * usage: ringrun -n N overlap */
#include "perf/perf.h"

#include <kolo/kolo.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORDS = 8 << 20, OPS = 2 };

static void check(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "overlap: %s\n", kolo_last_error());
	exit(1);
}

struct job {
	struct kolo_comm *comm;
	struct kolo_queue *queue;
	float *src, *now[OPS], *later[OPS];
};

static float *make(const struct kolo_comm *comm, bool filled)
{
	float *out = malloc(WORDS * sizeof(*out));

	if (!out) {
		fprintf(stderr, "overlap: no memory\n");
		exit(1);
	}
	for (size_t i = 0; i < WORDS; i++)
		out[i] = filled ? (float)(i % 1000) / 7 + (float)kolo_comm_rank(comm) / 3 : 0;
	return out;
}

/* The largest of all ranks'. */
static double slowest(const struct job *j, double mine)
{
	check(kolo_all_reduce(j->comm, &mine, &mine, 1, KOLO_F64, KOLO_MAX, NULL));
	return mine;
}

/* Microseconds. */
static double time_now(const struct job *j)
{
	int64_t begin;

	check(kolo_barrier(j->comm, NULL));
	begin = ko_now_ns();
	for (int k = 0; k < OPS; k++)
		check(kolo_all_reduce(j->comm, j->src, j->now[k], WORDS, KOLO_F32, KOLO_SUM, NULL));
	return slowest(j, (double)(ko_now_ns() - begin) / 1e3);
}

/* Also how long the sleep took: a thread that wakes waits for its core until the kernel takes it
 * from the queue's thread. */
static double time_behind_sleep(const struct job *j, double sleep_us, double *slept)
{
	long us = (long)sleep_us;
	struct timespec sleep = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };
	int64_t begin;
	double total;

	check(kolo_barrier(j->comm, NULL));
	begin = ko_now_ns();
	for (int k = 0; k < OPS; k++)
		check(kolo_all_reduce(j->comm, j->src, j->later[k], WORDS, KOLO_F32, KOLO_SUM,
				      j->queue));
	nanosleep(&sleep, NULL);
	*slept = (double)(ko_now_ns() - begin) / 1e3;
	check(kolo_queue_wait(j->queue));
	total = (double)(ko_now_ns() - begin) / 1e3;
	*slept = slowest(j, *slept);
	return slowest(j, total);
}

int main(void)
{
	double now[PERF_ROUNDS], total[PERF_ROUNDS], ratio[PERF_ROUNDS], slept[PERF_ROUNDS];
	struct job j;
	int wrong = 0;

	check(kolo_comm_create(NULL, &j.comm));
	check(kolo_queue_create(&j.queue));
	j.src = make(j.comm, true);
	for (int k = 0; k < OPS; k++) {
		j.now[k] = make(j.comm, false);
		j.later[k] = make(j.comm, false);
	}
	time_behind_sleep(&j, time_now(&j), &slept[0]); /* warms up */
	for (int r = 0; r < PERF_ROUNDS; r++) {
		now[r] = time_now(&j);
		total[r] = time_behind_sleep(&j, now[r], &slept[r]);
		ratio[r] = total[r] / now[r];
		slept[r] /= now[r];
	}
	for (int k = 0; k < OPS; k++)
		wrong |= memcmp(j.now[k], j.later[k], WORDS * sizeof(float)) != 0;
	wrong = slowest(&j, wrong) > 0;
	if (kolo_comm_rank(j.comm) == 0)
		printf("# two all_reduces of 32 MiB, %d ranks, median of %d rounds: %.0f us; in a queue, behind a sleep of as long: "
		       "%.0f us; %.3f times, the sleep alone %.3f times; bits %s\n",
		       kolo_comm_nranks(j.comm), PERF_ROUNDS, perf_median(now, PERF_ROUNDS),
		       perf_median(total, PERF_ROUNDS), perf_median(ratio, PERF_ROUNDS),
		       perf_median(slept, PERF_ROUNDS), wrong ? "DIFFER" : "equal");
	kolo_queue_destroy(j.queue);
	kolo_comm_destroy(j.comm);
	free(j.src);
	for (int k = 0; k < OPS; k++) {
		free(j.now[k]);
		free(j.later[k]);
	}
	return wrong;
}
