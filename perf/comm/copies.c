/* What memory does at most: as many threads as there are ranks, each on a core of its own while
 * cores last, copy so many bytes with memcpy, all at once. Prints the microseconds until all are
 * done, the median of some times.
 *
 * usage: copies RANKS BYTES */
#include "perf/perf.h"

#include <kolo/kolo.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { REPEATS = 7, MAX_RANKS = 64 };

static pthread_barrier_t barrier;
static int cpus[MAX_RANKS], ncpus;
static size_t bytes;
static double times[REPEATS];

static void *copy_often(void *arg)
{
	int rank = *(int *)arg;
	char *from, *to;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpus[rank % ncpus], &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	from = malloc(bytes);
	to = malloc(bytes);
	if (!from || !to) {
		fprintf(stderr, "copies: no memory for %zu bytes\n", 2 * bytes);
		exit(1);
	}
	memset(from, 1, bytes); /* else all pages are one page of zeros */
	memset(to, 2, bytes);
	for (int k = 0; k < REPEATS; k++) {
		int64_t begin;

		pthread_barrier_wait(&barrier);
		begin = ko_now_ns();
		memcpy(to, from, bytes);
		pthread_barrier_wait(&barrier);
		if (rank == 0)
			times[k] = (double)(ko_now_ns() - begin) / 1e3;
	}
	if (memcmp(to, from, bytes) != 0)
		exit(1);
	free(from);
	free(to);
	return NULL;
}

int main(int argc, char **argv)
{
	int nranks = argc == 3 ? atoi(argv[1]) : 0, ranks[MAX_RANKS];
	pthread_t threads[MAX_RANKS];

	bytes = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
	if (nranks < 1 || nranks > MAX_RANKS || !bytes) {
		fprintf(stderr, "usage: copies RANKS BYTES   (1 to %d ranks)\n", MAX_RANKS);
		return 2;
	}
	ncpus = kolo_cores(cpus, nranks);
	if (ncpus < 1 || pthread_barrier_init(&barrier, NULL, (unsigned)nranks) != 0)
		return 1;
	if (ncpus > nranks)
		ncpus = nranks;
	for (int r = 0; r < nranks; r++) {
		ranks[r] = r;
		if (pthread_create(&threads[r], NULL, copy_often, &ranks[r]) != 0)
			return 1;
	}
	for (int r = 0; r < nranks; r++)
		pthread_join(threads[r], NULL);
	printf("%.1f\n", perf_median(times, REPEATS));
	return 0;
}
