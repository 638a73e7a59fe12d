/* An MPI collective timed as ringbench times Kolo's: f32 sum, root 0, out of place and in place, an
 * untimed barrier before each, the slowest rank counts, the median over iterations. send_recv is
 * messages to and fro between rank r and rank r + N/2, or a window of them one way. max_loc,
 * complex_product and own_max are all-reduces of DOUBLE_INT, of complex double, and of double with
 * an operation of this program. One JSON object per line, ringbench's fields.
 *
 * usage: mpi_collectives [--plain] [--common-start] COLLECTIVE MIN MAX FACTOR [WINDOW]   (bytes of
 * the whole vector, or of a message; --plain: in memory from malloc, else from MPI_Alloc_mem;
 * --common-start: as ringbench has it) */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ITERATIONS = 100000, WARMUPS = 16, ROUND_TRIPS = 10, MAX_WINDOW = 1000 };

static int rank, nranks, window, common_start;
static double *times;

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

enum collective {
	ALL_REDUCE,
	BROADCAST,
	REDUCE,
	REDUCE_SCATTER,
	ALL_GATHER,
	ALL_TO_ALL,
	GATHER,
	SCATTER,
	SEND_RECV,
	MAX_LOC,
	COMPLEX_PRODUCT,
	OWN_MAX,
	NCOLLECTIVES
};

static const char *const names[NCOLLECTIVES] = {
	[ALL_REDUCE] = "all_reduce",
	[BROADCAST] = "broadcast",
	[REDUCE] = "reduce",
	[REDUCE_SCATTER] = "reduce_scatter",
	[ALL_GATHER] = "all_gather",
	[ALL_TO_ALL] = "all_to_all",
	[GATHER] = "gather",
	[SCATTER] = "scatter",
	[SEND_RECV] = "send_recv",
	[MAX_LOC] = "max_loc",
	[COMPLEX_PRODUCT] = "complex_product",
	[OWN_MAX] = "own_max",
};

static MPI_Op own_max;

static void larger(void *in, void *inout, int *n, MPI_Datatype *type)
{
	const double *x = in;
	double *y = inout;

	(void)type;
	for (int i = 0; i < *n; i++)
		y[i] = x[i] > y[i] ? x[i] : y[i];
}

/* Bytes of an element. */
static size_t size_of(enum collective coll)
{
	switch (coll) {
	case MAX_LOC:
	case COMPLEX_PRODUCT: return 16;
	case OWN_MAX: return sizeof(double);
	default: return sizeof(float);
	}
}

/* Of the messages; -1: none. */
static int partner(void)
{
	int half = nranks / 2;

	return rank < half ? rank + half : rank < 2 * half ? rank - half : -1;
}

static void ping_pong(const float *src, float *dst, int n)
{
	for (int k = 0; k < 2 * ROUND_TRIPS; k++) {
		if ((k % 2 == 0) == (rank < partner()))
			MPI_Send(src, n, MPI_FLOAT, partner(), 1, MPI_COMM_WORLD);
		else
			MPI_Recv(dst, n, MPI_FLOAT, partner(), 1, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
	}
}

/* All one way, then an empty message the other way. */
static void pass_window(const float *src, float *dst, int n)
{
	MPI_Request requests[MAX_WINDOW];

	for (int k = 0; k < window; k++) {
		if (rank < partner())
			MPI_Isend(src, n, MPI_FLOAT, partner(), 1, MPI_COMM_WORLD, &requests[k]);
		else
			MPI_Irecv(dst, n, MPI_FLOAT, partner(), 1, MPI_COMM_WORLD, &requests[k]);
	}
	MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
	if (rank < partner())
		MPI_Recv(NULL, 0, MPI_FLOAT, partner(), 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		MPI_Send(NULL, 0, MPI_FLOAT, partner(), 2, MPI_COMM_WORLD);
}

static int is_per_rank(enum collective coll)
{
	return coll >= REDUCE_SCATTER && coll <= SCATTER;
}

/* n elements as the call counts them: for reduce_scatter and all_gather those of one rank. */
static void call(enum collective coll, const float *src, float *dst, int n, int in_place)
{
	const void *from = in_place ? MPI_IN_PLACE : src;

	switch (coll) {
	case ALL_REDUCE: MPI_Allreduce(from, dst, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
	case BROADCAST: /* always in place, as MPI has it: out of place root's part is the caller's
			   to copy */
		if (!in_place && rank == 0)
			memcpy(dst, src, (size_t)n * sizeof(*dst));
		MPI_Bcast(dst, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
		break;
	case REDUCE:
		MPI_Reduce(rank == 0  ? from
			   : in_place ? dst
				      : src,
			   dst, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
		break;
	case REDUCE_SCATTER:
		MPI_Reduce_scatter_block(from, dst, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		break;
	case ALL_GATHER:
		MPI_Allgather(from, n, MPI_FLOAT, dst, n, MPI_FLOAT, MPI_COMM_WORLD);
		break;
	case ALL_TO_ALL: MPI_Alltoall(src, n, MPI_FLOAT, dst, n, MPI_FLOAT, MPI_COMM_WORLD); break;
	case GATHER:
		MPI_Gather(rank == 0 ? from : src, n, MPI_FLOAT, dst, n, MPI_FLOAT, 0,
			   MPI_COMM_WORLD);
		break;
	case SCATTER:
		MPI_Scatter(src, n, MPI_FLOAT, rank == 0 && in_place ? MPI_IN_PLACE : dst, n,
			    MPI_FLOAT, 0, MPI_COMM_WORLD);
		break;
	case MAX_LOC:
		MPI_Allreduce(from, dst, n, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
		break;
	case COMPLEX_PRODUCT:
		MPI_Allreduce(from, dst, n, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD);
		break;
	case OWN_MAX: MPI_Allreduce(from, dst, n, MPI_DOUBLE, own_max, MPI_COMM_WORLD); break;
	default:
		if (partner() >= 0)
			(window ? pass_window : ping_pong)(src, dst, n);
	}
}

/* By the host's clock: MPI_Wtime may begin at another time on each rank. */
static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* As in ringbench. */
static double wait_for_tick(void)
{
	enum { TICK_US = 4 };
	double tick = (double)((uint64_t)now_us() / TICK_US + 1) * TICK_US;

	while (now_us() < tick)
		;
	return tick;
}

static double time_once(enum collective coll, const float *src, float *dst, int n, int in_place)
{
	double begin;

	MPI_Barrier(MPI_COMM_WORLD);
	begin = common_start ? wait_for_tick() : now_us();
	call(coll, src, dst, n, in_place);
	return (now_us() - begin) / (coll != SEND_RECV ? 1 : window ? window : 2 * ROUND_TRIPS);
}

/* Iterations for about 0.1 s, as ringbench chooses them. */
static void measure(enum collective coll, const float *src, float *dst, size_t bytes, int in_place)
{
	int iterations, n = (int)(bytes / size_of(coll)) / (is_per_rank(coll) ? nranks : 1);
	int messages = coll != SEND_RECV ? 1 : window ? window : 2 * ROUND_TRIPS;
	double last = 0, wanted;

	for (int i = 0; i <= WARMUPS; i++)
		last = time_once(coll, src, dst, n, in_place);
	wanted = 100e3 / messages / (last > 0.1 ? last : 0.1);
	iterations = wanted < 5 ? 5 : wanted > MAX_ITERATIONS ? MAX_ITERATIONS : (int)wanted;
	MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
	for (int i = 0; i < iterations; i++)
		times[i] = time_once(coll, src, dst, n, in_place);
	MPI_Allreduce(MPI_IN_PLACE, times, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	qsort(times, (size_t)iterations, sizeof(*times), ascending);
	if (rank == 0)
		printf("{\"collective\": \"%s\", \"ranks\": %d, \"in_place\": %s, \"bytes\": %zu, "
		       "\"iterations\": %d, \"time_us\": %.3f}\n",
		       names[coll], nranks, in_place ? "true" : "false", bytes, iterations,
		       times[iterations / 2]);
}

/* What the library likes best, unless plain. */
static float *memory(int plain, size_t bytes)
{
	float *p = NULL;

	if (plain)
		p = malloc(bytes);
	else
		MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &p);
	if (!p)
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(p, 0, bytes);
	return p;
}

static void release(int plain, float *p)
{
	if (plain)
		free(p);
	else
		MPI_Free_mem(p);
}

static int is_option(int argc, char **argv, int at, const char *option)
{
	return argc > at && strcmp(argv[at], option) == 0;
}

int main(int argc, char **argv)
{
	int plain = is_option(argc, argv, 1, "--plain");
	int together = is_option(argc, argv, 1 + plain, "--common-start");
	char **word = argv + plain + together;
	int nwords = argc - plain - together;
	size_t min = nwords > 4 ? strtoull(word[2], NULL, 10) : 8,
	       max = nwords > 4 ? strtoull(word[3], NULL, 10) : 8;
	size_t factor = nwords > 4 ? strtoull(word[4], NULL, 10) : 2;
	size_t wanted = nwords > 5 ? strtoull(word[5], NULL, 10) : 0;
	float *src, *dst;
	int coll = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	MPI_Op_create(larger, 1, &own_max);
	while (nwords > 1 && coll < NCOLLECTIVES && strcmp(word[1], names[coll]) != 0)
		coll++;
	times = malloc(MAX_ITERATIONS * sizeof(*times));
	window = (int)wanted;
	common_start = together;
	if (!times || factor < 2 || coll == NCOLLECTIVES || wanted > MAX_WINDOW)
		MPI_Abort(MPI_COMM_WORLD, 1);
	src = memory(plain, max);
	dst = memory(plain, max);
	for (size_t size = min; size <= max; size *= factor)
		for (int in_place = 0; in_place <= (coll != ALL_TO_ALL && coll != SEND_RECV);
		     in_place++)
			measure((enum collective)coll, src, dst, size, in_place);
	MPI_Op_free(&own_max);
	release(plain, src);
	release(plain, dst);
	MPI_Finalize();
	free(times);
	return 0;
}
