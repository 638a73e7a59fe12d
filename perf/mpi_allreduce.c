/* An MPI all-reduce timed as ringbench times Kolo's: f32 sum, out of place and in place, an untimed barrier before
 * each, the slowest rank counts, the median over iterations. One JSON object per line, ringbench's fields. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITERATIONS = 100000, WARMUPS = 3 };

static int rank, nranks;
static double *times;

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double time_once(const float *src, float *dst, int n, int in_place)
{
	double begin;

	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	MPI_Allreduce(in_place ? MPI_IN_PLACE : src, dst, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	return (MPI_Wtime() - begin) * 1e6;
}

/* Iterations for about 0.2 s, as ringbench chooses them. */
static void measure(const float *src, float *dst, int n, int in_place)
{
	double last = 0, wanted;
	int iterations;

	for (int i = 0; i <= WARMUPS; i++)
		last = time_once(src, dst, n, in_place);
	wanted = 200e3 / (last > 0.1 ? last : 0.1);
	iterations = wanted < 5 ? 5 : wanted > MAX_ITERATIONS ? MAX_ITERATIONS : (int)wanted;
	MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
	for (int i = 0; i < iterations; i++)
		times[i] = time_once(src, dst, n, in_place);
	MPI_Allreduce(MPI_IN_PLACE, times, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	qsort(times, (size_t)iterations, sizeof(*times), ascending);
	if (rank == 0)
		printf("{\"collective\": \"all_reduce\", \"ranks\": %d, \"in_place\": %s, \"bytes\": %zu, "
		       "\"iterations\": %d, \"time_us\": %.3f}\n",
		       nranks, in_place ? "true" : "false", (size_t)n * sizeof(float), iterations,
		       times[iterations / 2]);
}

int main(int argc, char **argv)
{
	size_t min = argc > 3 ? strtoull(argv[1], NULL, 10) : 8,
	       max = argc > 3 ? strtoull(argv[2], NULL, 10) : 8;
	size_t factor = argc > 3 ? strtoull(argv[3], NULL, 10) : 2;
	float *src = calloc(1, max), *dst = calloc(1, max);

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	times = malloc(MAX_ITERATIONS * sizeof(*times));
	if (!src || !dst || !times || factor < 2)
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(src, 0, max);
	memset(dst, 0, max);
	for (size_t size = min; size <= max; size *= factor)
		for (int in_place = 0; in_place <= 1; in_place++)
			measure(src, dst, (int)(size / sizeof(float)), in_place);
	MPI_Finalize();
	free(src);
	free(dst);
	free(times);
	return 0;
}
