/* Sizes between powers of two: of sizes drawn at random from 1 KiB to 128 MiB, how long an
 * operation takes beside the straight line between the powers of two around it. All sizes are
 * measured in rounds, one after the other, in one communicator; slowest rank; medians of the
 * rounds' ratios. Before a size is timed its operation is repeated, as ringbench does too: so much
 * that payloads have been in all of the board's rooms, which larger sizes push out of the caches.
 * Prints the sizes above the limit and the worst one of each operation.
 *
 * usage: ringrun -n N between [SEED] */
#include "perf/perf.h"

#include <kolo/kolo.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWN = 64, LEAST_BITS = 10, MOST_BITS = 27, ROUNDS = 15 };
enum { LEAST_TIMES = 5, MOST_TIMES = 200, TIMED_BYTES = 5 << 18 /* of a size in a round */ };
enum { WARM_BYTES = 4 << 20, LEAST_WARM = 2 }; /* and before: two ranks' rooms */
enum { POWERS = MOST_BITS - LEAST_BITS + 1, SIZES = DRAWN + POWERS };

static const double limit = 1.3;

struct job {
	struct kolo_comm *comm;
	int nranks;
	float *src, *dst;
};

static void check(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "between: %s\n", kolo_last_error());
	exit(1);
}

static int all_reduce(const struct job *j, size_t n)
{
	return kolo_all_reduce(j->comm, j->src, j->dst, n, KOLO_F32, KOLO_SUM, NULL);
}

static int broadcast(const struct job *j, size_t n)
{
	return kolo_broadcast(j->comm, j->src, j->dst, n, KOLO_F32, 0, NULL);
}

static int reduce(const struct job *j, size_t n)
{
	return kolo_reduce(j->comm, j->src, j->dst, n, KOLO_F32, KOLO_SUM, 0, NULL);
}

static int reduce_scatter(const struct job *j, size_t n)
{
	return kolo_reduce_scatter(j->comm, j->src, j->dst, n / (size_t)j->nranks, KOLO_F32,
				   KOLO_SUM, NULL);
}

static int all_gather(const struct job *j, size_t n)
{
	return kolo_all_gather(j->comm, j->src, j->dst, n / (size_t)j->nranks, KOLO_F32, NULL);
}

static int all_to_all(const struct job *j, size_t n)
{
	return kolo_all_to_all(j->comm, j->src, j->dst, n / (size_t)j->nranks, KOLO_F32, NULL);
}

static const struct operation {
	const char *name;
	int (*run)(const struct job *j, size_t n);
} operations[] = { { "all_reduce", all_reduce }, { "broadcast", broadcast },
		   { "reduce", reduce },         { "reduce_scatter", reduce_scatter },
		   { "all_gather", all_gather }, { "all_to_all", all_to_all } };

static void warm_up(const struct job *j, const struct operation *op, size_t bytes)
{
	for (size_t k = 0; k < WARM_BYTES / bytes + LEAST_WARM; k++)
		check(op->run(j, bytes / sizeof(float)));
}

/* Microseconds: the median of the times of the slowest rank. */
static double time_size(const struct job *j, const struct operation *op, size_t bytes)
{
	static double each[MOST_TIMES];
	size_t times = TIMED_BYTES / bytes;

	warm_up(j, op, bytes);
	times = times < LEAST_TIMES ? LEAST_TIMES : times > MOST_TIMES ? MOST_TIMES : times;
	for (size_t k = 0; k < times; k++) {
		int64_t begin;

		check(kolo_barrier(j->comm, NULL));
		begin = ko_now_ns();
		check(op->run(j, bytes / sizeof(float)));
		each[k] = (double)(ko_now_ns() - begin) / 1e3;
	}
	check(kolo_all_reduce(j->comm, each, each, times, KOLO_F64, KOLO_MAX, NULL));
	return perf_median(each, (int)times);
}

static int by_size(const void *a, const void *b)
{
	size_t x = *(const size_t *)a, y = *(const size_t *)b;

	return (x > y) - (x < y);
}

/* Powers of two, and between them sizes that are as likely in each octave. */
static void draw_sizes(size_t sizes[SIZES], unsigned seed)
{
	for (int k = 0; k < POWERS; k++)
		sizes[k] = (size_t)1 << (LEAST_BITS + k);
	for (int k = POWERS; k < SIZES; k++) {
		double octaves = (MOST_BITS - LEAST_BITS) * (double)rand_r(&seed) / RAND_MAX;

		sizes[k] = (size_t)(exp2(LEAST_BITS + octaves)) & ~(sizeof(float) - 1);
	}
	qsort(sizes, SIZES, sizeof(*sizes), by_size);
}

static bool is_power(size_t bytes)
{
	return (bytes & (bytes - 1)) == 0;
}

/* Over the line between the powers of two around size number k, in a round. */
static double over_line(const size_t sizes[SIZES], const double us[SIZES], int k)
{
	int low = k, high = k;
	double part;

	while (!is_power(sizes[low]))
		low--;
	while (!is_power(sizes[high]))
		high++;
	if (low == high)
		return 1;
	part = (double)(sizes[k] - sizes[low]) / (double)(sizes[high] - sizes[low]);
	return us[k] / (us[low] + part * (us[high] - us[low]));
}

static void print_sizes(const struct operation *op, const size_t sizes[SIZES],
			const double us[ROUNDS][SIZES])
{
	double worst = 0;
	size_t of = 0;

	for (int k = 0; k < SIZES; k++) {
		double over[ROUNDS], median;

		for (int r = 0; r < ROUNDS; r++)
			over[r] = over_line(sizes, us[r], k);
		median = perf_median(over, ROUNDS);
		if (median > worst) {
			worst = median;
			of = sizes[k];
		}
		if (median > limit)
			printf("%-15s %10zu bytes: %.2f of the line\n", op->name, sizes[k], median);
	}
	printf("# %s: of %d sizes the worst is %zu bytes with %.2f of the line\n", op->name, DRAWN,
	       of, worst);
	fflush(stdout);
}

static void measure(const struct job *j, const struct operation *op, const size_t sizes[SIZES])
{
	static double us[ROUNDS][SIZES];

	for (int r = -1; r < ROUNDS; r++) /* the first one is for learning */
		for (int k = 0; k < SIZES; k++)
			us[r < 0 ? 0 : r][k] = time_size(j, op, sizes[k]);
	if (kolo_comm_rank(j->comm) == 0)
		print_sizes(op, sizes, us);
}

int main(int argc, char **argv)
{
	size_t sizes[SIZES];
	struct job j;

	check(kolo_comm_create(NULL, &j.comm));
	j.nranks = kolo_comm_nranks(j.comm);
	draw_sizes(sizes, argc > 1 ? (unsigned)atoi(argv[1]) : 1);
	j.src = calloc((size_t)1 << MOST_BITS, 1);
	j.dst = calloc((size_t)1 << MOST_BITS, 1);
	if (!j.src || !j.dst) {
		fprintf(stderr, "between: no memory\n");
		return 1;
	}
	memset(j.src, 1, (size_t)1 << MOST_BITS);
	memset(j.dst, 1, (size_t)1 << MOST_BITS);
	for (size_t k = 0; k < sizeof(operations) / sizeof(*operations); k++)
		measure(&j, &operations[k], sizes);
	kolo_comm_destroy(j.comm);
	free(j.src);
	free(j.dst);
	return 0;
}
