/* What a call costs that is left to a queue: how soon it returns, and when the all-reduce of 8 B is
 * over, after rests of several lengths. Beside it, in turns, the bare wake of a sleeping thread.
 * Then a step that computes and leaves an all-reduce of 64 KiB to the queue after each tenth of
 * it. Then what an idle queue uses of the processor. Medians of rank 0 are printed.
 *
 * usage: ringrun -n N queued */
#include "perf/perf.h"

#include <kolo/kolo.h>

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 501, PARTS = 10, PART_WORK = 50000, STEP_WORDS = 64 << 8, IDLE_S = 10 };

struct job {
	struct kolo_comm *comm;
	struct kolo_queue *queue;
	float *x;
	/* A thread that sleeps until the word changes. */
	pthread_t sleeper;
	_Atomic uint32_t word;
	_Atomic bool stop;
};

static void check(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "queued: %s\n", kolo_last_error());
	exit(1);
}

static void *sleep_on(void *arg)
{
	struct job *j = arg;

	while (!atomic_load(&j->stop))
		syscall(SYS_futex, &j->word, FUTEX_WAIT_PRIVATE, atomic_load(&j->word), NULL, NULL,
			0);
	return NULL;
}

static void wake(struct job *j)
{
	atomic_fetch_add(&j->word, 1);
	syscall(SYS_futex, &j->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void compute(int64_t us)
{
	int64_t until = ko_now_ns() + us * 1000;

	while (ko_now_ns() < until)
		;
}

/* A rest before a call: the caller computes, or sleeps. */
struct rest {
	const char *name;
	int us;
	bool asleep;
};

static void take(const struct rest *rest)
{
	if (rest->asleep)
		nanosleep(&(struct timespec){ .tv_nsec = rest->us * 1000 }, NULL);
	else
		compute(rest->us);
}

static void print_calls(struct job *j, const struct rest *rest)
{
	static double call[TIMES], over[TIMES], bare[TIMES];

	check(kolo_barrier(j->comm, NULL));
	for (int k = 0; k < TIMES; k++) {
		int64_t begin;

		take(rest);
		begin = ko_now_ns();
		wake(j);
		bare[k] = (double)(ko_now_ns() - begin) / 1e3;
		check(kolo_all_reduce(j->comm, j->x, j->x, 2, KOLO_F32, KOLO_MAX, j->queue));
		check(kolo_queue_wait(j->queue));
		take(rest);
		begin = ko_now_ns();
		check(kolo_all_reduce(j->comm, j->x, j->x, 2, KOLO_F32, KOLO_MAX, j->queue));
		call[k] = (double)(ko_now_ns() - begin) / 1e3;
		check(kolo_queue_wait(j->queue));
		over[k] = (double)(ko_now_ns() - begin) / 1e3;
	}
	if (kolo_comm_rank(j->comm) == 0)
		printf("# %s: the call %.2f us, a bare wake %.2f us; over after %.2f us\n",
		       rest->name, perf_median(call, TIMES), perf_median(bare, TIMES),
		       perf_median(over, TIMES));
}

/* Microseconds of a step, with or without what it leaves to the queue. */
static double time_step(struct job *j, bool queued)
{
	int64_t begin;

	check(kolo_barrier(j->comm, NULL));
	begin = ko_now_ns();
	for (int k = 0; k < PARTS; k++) {
		static volatile float sink = 1;
		float a = sink;

		for (int i = 0; i < PART_WORK; i++)
			a = a * 0.999F + 0.001F;
		sink = a;
		if (queued)
			check(kolo_all_reduce(j->comm, j->x, j->x, STEP_WORDS, KOLO_F32, KOLO_MAX,
					      j->queue));
	}
	check(kolo_queue_wait(j->queue));
	return (double)(ko_now_ns() - begin) / 1e3;
}

static void print_step(struct job *j)
{
	static double with[TIMES], without[TIMES];

	for (int k = 0; k < TIMES; k++) {
		without[k] = time_step(j, false);
		with[k] = time_step(j, true);
	}
	if (kolo_comm_rank(j->comm) == 0)
		printf("# a step: %.0f us; with %d all-reduces of 64 KiB in the queue: %.0f us\n",
		       perf_median(without, TIMES), PARTS, perf_median(with, TIMES));
}

static double used_ms(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e3 +
	       (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e3;
}

static void print_idle(struct job *j)
{
	double before = used_ms();

	sleep(IDLE_S);
	if (kolo_comm_rank(j->comm) == 0)
		printf("# with an idle queue the process uses %.2f ms of the processor in %d s\n",
		       used_ms() - before, IDLE_S);
}

int main(void)
{
	static const struct rest rests[] = { { "no rest", 0, false },
					     { "20 us of work", 20, false },
					     { "40 us of sleep", 40, true },
					     { "1 ms of work", 1000, false },
					     { "1 ms of sleep", 1000, true } };
	static struct job j;

	check(kolo_comm_create(NULL, &j.comm));
	check(kolo_queue_create(&j.queue));
	j.x = calloc(STEP_WORDS, sizeof(*j.x));
	if (!j.x || pthread_create(&j.sleeper, NULL, sleep_on, &j)) {
		fprintf(stderr, "queued: no memory, or no thread\n");
		return 1;
	}
	for (size_t k = 0; k < sizeof(rests) / sizeof(*rests); k++)
		print_calls(&j, &rests[k]);
	print_step(&j);
	print_idle(&j);
	atomic_store(&j.stop, true);
	wake(&j);
	pthread_join(j.sleeper, NULL);
	kolo_queue_destroy(j.queue);
	kolo_comm_destroy(j.comm);
	free(j.x);
	return 0;
}
