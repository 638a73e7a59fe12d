/* Threads that work together (zero_threads_run). They sleep on two words. `round` counts the runs
 * and wakes the workers. `left` counts the workers that are not done with the run, and wakes the
 * caller. */
#include "zero/base/threads.h"

#include "zero/base/basics.h"

#include "kolo/kolo.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct worker {
	struct zero_threads *threads;
	int index; /* the caller is 0 */
	pthread_t thread;
};

struct zero_threads {
	int n;
	int nstarted; /* workers, whose indices are 1 to nstarted */
	int *cores;   /* the core of each thread; NULL: no worker is bound */
	/* The run. The caller writes it before a new round, workers read it after that. */
	zero_part_fn *fn; /* NULL: the threads end */
	void *arg;
	int nparts;
	_Atomic uint32_t round;
	char apart[64]; /* in another cache line */
	_Atomic uint32_t left;
	struct worker workers[];
};

/* Returns when the word is not `old` any more, or sooner. It sleeps at once: if threads share
 * cores, looking at the word first takes time from those that work. Four threads on two cores meet
 * in 13 us; with 1 us of looking first, in 50 us. */
static void sleep_on(_Atomic uint32_t *word, uint32_t old)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* The first part of thread i of n: the least p with p n / nparts >= i. */
static int first_part(int i, int n, int nparts)
{
	return (int)(((int64_t)i * nparts + n - 1) / n);
}

static void run_parts(const struct zero_threads *t, int i)
{
	int end = first_part(i + 1, t->n, t->nparts);

	for (int part = first_part(i, t->n, t->nparts); part < end; part++)
		t->fn(t->arg, part);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct zero_threads *t = w->threads;

	for (uint32_t seen = 0;;) {
		uint32_t round;

		/* Pairs with the release in begin_round: a worker that sees the round also sees the
		 * run. */
		while ((round = atomic_load_explicit(&t->round, memory_order_acquire)) == seen)
			sleep_on(&t->round, seen);
		seen = round;
		if (!t->fn)
			return NULL;
		run_parts(t, w->index);
		/* Pairs with the acquire in zero_threads_run: the caller sees what was done. */
		if (atomic_fetch_sub_explicit(&t->left, 1, memory_order_acq_rel) == 1)
			wake(&t->left);
	}
}

static void bind_worker(const struct worker *w, int core)
{
	cpu_set_t *set = CPU_ALLOC((size_t)core + 1);
	size_t len = CPU_ALLOC_SIZE((size_t)core + 1);

	if (!set)
		return;
	CPU_ZERO_S(len, set);
	CPU_SET_S((size_t)core, len, set);
	pthread_setaffinity_np(w->thread, len,
			       set); /* no such core: the thread stays where it is */
	CPU_FREE(set);
}

/* The system may have moved the caller to the core of a worker. The core would then do their parts
 * one after the other. So that worker gets the core that the caller has left. */
static void make_room(struct zero_threads *t)
{
	int here = t->cores ? sched_getcpu() : -1;

	for (int i = 1; i <= t->nstarted && here >= 0; i++)
		if (t->cores[i] == here) {
			t->cores[i] = t->cores[0];
			t->cores[0] = here;
			bind_worker(&t->workers[i - 1], t->cores[i]);
			return;
		}
}

static void begin_round(struct zero_threads *t, zero_part_fn *fn, void *arg, int nparts)
{
	t->fn = fn;
	t->arg = arg;
	t->nparts = nparts;
	atomic_store_explicit(&t->left, (uint32_t)t->nstarted, memory_order_relaxed);
	atomic_fetch_add_explicit(&t->round, 1, memory_order_release);
	wake(&t->round);
}

void zero_threads_run(struct zero_threads *t, int nparts, zero_part_fn *fn, void *arg)
{
	uint32_t left;

	if (!t || t->n == 1 || nparts <= 1) {
		for (int part = 0; part < nparts; part++)
			fn(arg, part);
		return;
	}
	make_room(t);
	begin_round(t, fn, arg, nparts);
	run_parts(t, 0);
	while ((left = atomic_load_explicit(&t->left, memory_order_acquire)) > 0)
		sleep_on(&t->left, left);
}

int zero_threads_count(const struct zero_threads *t)
{
	return t ? t->n : 1;
}

/* ---- Start and end --------------------------------------------------------------------------- */

static int min_int(int a, int b)
{
	return a < b ? a : b;
}

/* Lists the cores, the one of the caller first. Returns how many there are, or an error. */
static int list_cores(int **out)
{
	int n = kolo_cores(NULL, 0), here = sched_getcpu(), at = 0;
	int *cores = calloc(2 * (size_t)n, sizeof(*cores));

	*out = cores;
	if (!cores)
		return kolo_error_set(KOLO_ENOMEM, "a list of %d cores: out of memory", n);
	n = min_int(n, kolo_cores(cores, n)); /* there may be fewer now */
	for (int i = 0; i < n; i++)
		if (cores[i] == here)
			at = i;
	memcpy(cores + n, cores, (size_t)n * sizeof(*cores));
	memmove(cores, cores + at, (size_t)n * sizeof(*cores));
	return n;
}

/* This repeats ko_thread_start of comm/sys/thread.c, because zero/ sees public headers alone. */
int zero_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}

static int start_workers(struct zero_threads *t)
{
	for (int i = 1; i < t->n; i++) {
		struct worker *w = &t->workers[i - 1];
		int err;

		*w = (struct worker){ .threads = t, .index = i };
		if ((err = zero_thread_start(&w->thread, work, w)) != 0)
			return kolo_error_set(
				KOLO_ESYS,
				"thread %d of %d for updates: pthread_create: %s; fewer of them (threads) may do",
				i + 1, t->n, strerror(err));
		t->nstarted++;
		if (t->cores)
			bind_worker(w, t->cores[i]);
	}
	return 0;
}

int zero_threads_open(int n, int sharing, struct zero_threads **out)
{
	struct zero_threads *t;
	int *cores, ncores = list_cores(&cores), rc;

	*out = NULL;
	if (ncores < 0)
		return ncores;
	if (n == 0)
		n = sharing > 1 ? ncores / sharing : ncores;
	if (n < 1)
		n = 1;
	/* Other processes of this host would bind their threads to the same cores. */
	if (sharing > 1 || n > ncores) {
		free(cores);
		cores = NULL;
	}
	if (!(t = calloc(1, sizeof(*t) + (size_t)n * sizeof(t->workers[0])))) {
		free(cores);
		return kolo_error_set(KOLO_ENOMEM, "%d threads for updates: out of memory", n);
	}
	t->n = n;
	t->cores = cores;
	if ((rc = start_workers(t)) < 0) {
		zero_threads_close(t);
		return rc;
	}
	*out = t;
	return 0;
}

void zero_threads_close(struct zero_threads *t)
{
	if (!t)
		return;
	begin_round(t, NULL, NULL, 0);
	for (int i = 0; i < t->nstarted; i++)
		pthread_join(t->workers[i].thread, NULL);
	free(t->cores);
	free(t);
}
