/* See nccl_program.h. */
#include "tests/nccl/nccl_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void wrong(const char *what, const char *file, int line)
{
	printf("%s:%d: not true: %s (%s)\n", file, line, what, ncclGetLastError(NULL));
	fflush(stdout);
	_exit(1);
}

void must(ncclResult_t result, const char *what, const char *file, int line)
{
	if (result == ncclSuccess)
		return;
	printf("%s:%d: %s: %s: %s\n", file, line, what, ncclGetErrorString(result),
	       ncclGetLastError(NULL));
	fflush(stdout);
	_exit(1);
}

uint64_t draw(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

int number(const char *name, int otherwise)
{
	const char *text = getenv(name);

	return text && *text ? atoi(text) : otherwise;
}

void finish(struct rank *r)
{
	for (int k = 0; k < STREAMS; k++)
		CHECK(cuStreamSynchronize(r->stream[k]) == 0);
}

/* ---- Types ----------------------------------------------------------------------------------- */

/* A floating type has bits of an exponent and of a mantissa; whole ones have bytes alone. */
static const struct type {
	size_t size;
	int exponent, mantissa;
} types[ncclNumTypes] = {
	[ncclInt8] = { 1, 0, 0 },       [ncclUint8] = { 1, 0, 0 },
	[ncclInt32] = { 4, 0, 0 },      [ncclUint32] = { 4, 0, 0 },
	[ncclInt64] = { 8, 0, 0 },      [ncclUint64] = { 8, 0, 0 },
	[ncclFloat16] = { 2, 5, 10 },   [ncclFloat32] = { 4, 8, 23 },
	[ncclFloat64] = { 8, 11, 52 },  [ncclBfloat16] = { 2, 8, 7 },
	[ncclFloat8e4m3] = { 1, 4, 3 }, [ncclFloat8e5m2] = { 1, 5, 2 },
};

/* The bits of a whole number of 1 or more, which the type can have. */
static uint64_t bits_of(ncclDataType_t type, uint64_t value)
{
	const struct type *t = &types[type];
	int power = 63 - __builtin_clzll(value);
	uint64_t mantissa;

	if (t->exponent == 0)
		return value;
	mantissa = value << (63 - power) << 1 >> (64 - t->mantissa);
	return (uint64_t)(power + (1 << (t->exponent - 1)) - 1) << t->mantissa | mantissa;
}

static void put(ncclDataType_t type, uint8_t *array, size_t i, uint64_t value)
{
	uint64_t bits = bits_of(type, value);

	memcpy(array + i * types[type].size, &bits, types[type].size);
}

static bool has(ncclDataType_t type, const uint8_t *array, size_t i, uint64_t value)
{
	uint64_t bits = bits_of(type, value);

	return memcmp(array + i * types[type].size, &bits, types[type].size) == 0;
}

/* ---- Steps of a program ---------------------------------------------------------------------- */

enum {
	ALL_REDUCE,
	REDUCE,
	REDUCE_SCATTER,
	BROADCAST,
	BCAST,
	ALL_GATHER,
	ALL_TO_ALL,
	GATHER,
	SCATTER,
	MESSAGES,
	KINDS
};

enum { PAIRS = 5 };

struct step step_draw(uint64_t *seed, int nranks)
{
	static const size_t lengths[] = { 0, 1, 3, 100, 777, MOST };
	static const ncclRedOp_t ops[] = { ncclSum, ncclMax, ncclMin, ncclProd };
	struct step s = { .kind = (int)(draw(seed) % KINDS) };

	s.root = (int)(draw(seed) % (uint64_t)nranks);
	s.stream = (int)(draw(seed) % STREAMS);
	s.n = lengths[draw(seed) % 6];
	s.type = (ncclDataType_t)(draw(seed) % ncclNumTypes);
	s.op = ops[draw(seed) % 4];
	if (s.type == ncclFloat8e5m2 && s.op == ncclSum) /* it has no 5 */
		s.op = ncclMax;
	s.in_place = draw(seed) % 2;
	s.src_shift = draw(seed) % SHIFT;
	s.dst_shift = draw(seed) % SHIFT;
	s.seed = draw(seed);
	return s;
}

/* The rank's elements: they begin anywhere. */
static uint8_t *source(const struct rank *r, const struct step *s)
{
	return r->src + s->src_shift * types[s->type].size;
}

static uint8_t *result(const struct rank *r, const struct step *s)
{
	return r->dst + s->dst_shift * types[s->type].size;
}

static uint8_t *at(uint8_t *array, const struct step *s, size_t i)
{
	return array + i * types[s->type].size;
}

/* What rank has at i: so small that no sum or product of 8 is rounded. It depends on the turn of a
 * step that is done again. */
static uint64_t element(const struct step *s, int rank, size_t i)
{
	return (s->seed + s->turn + (uint64_t)rank * 31 + i * 7) %
		       (types[s->type].size < 4 ? 2 : 5) +
	       1;
}

static uint64_t combined(const struct step *s, int nranks, size_t i)
{
	uint64_t sum = element(s, 0, i);

	for (int r = 1; r < nranks; r++) {
		uint64_t x = element(s, r, i);

		switch (s->op) {
		case ncclSum: sum += x; break;
		case ncclProd: sum *= x; break;
		case ncclMax: sum = x > sum ? x : sum; break;
		default: sum = x < sum ? x : sum; break;
		}
	}
	return sum;
}

static void start_messages(struct rank *r, const struct step *s)
{
	uint64_t seed = s->seed;

	MUST(ncclGroupStart());
	for (int k = 0; k < PAIRS; k++) {
		int from = (int)(draw(&seed) % (uint64_t)r->nranks);
		int to = (int)(draw(&seed) % (uint64_t)r->nranks);
		size_t n = draw(&seed) % 3 ? draw(&seed) % MOST : 0;

		if (to == r->rank)
			MUST(ncclRecv(at(result(r, s), s, (size_t)k * MOST), n, s->type, from,
				      r->comm, r->stream[k % STREAMS]));
		if (from == r->rank)
			MUST(ncclSend(at(source(r, s), s, (size_t)k), n, s->type, to, r->comm,
				      r->stream[s->stream]));
	}
	MUST(ncclGroupEnd());
}

void step_start(struct rank *r, const struct step *s)
{
	cudaStream_t q = r->stream[s->stream];
	uint8_t *src = source(r, s), *dst = result(r, s);
	uint8_t *mine = at(dst, s, (size_t)r->rank * s->n);

	switch (s->kind) {
	case ALL_REDUCE:
		MUST(ncclAllReduce(s->in_place ? dst : src, dst, s->n, s->type, s->op, r->comm, q));
		break;
	case REDUCE: MUST(ncclReduce(src, dst, s->n, s->type, s->op, s->root, r->comm, q)); break;
	case REDUCE_SCATTER:
		MUST(ncclReduceScatter(src, dst, s->n, s->type, s->op, r->comm, q));
		break;
	case BROADCAST: MUST(ncclBroadcast(src, dst, s->n, s->type, s->root, r->comm, q)); break;
	case BCAST: MUST(ncclBcast(dst, s->n, s->type, s->root, r->comm, q)); break;
	case ALL_GATHER:
		MUST(ncclAllGather(s->in_place ? mine : src, dst, s->n, s->type, r->comm, q));
		break;
	case ALL_TO_ALL: MUST(ncclAlltoAll(src, dst, s->n, s->type, r->comm, q)); break;
	case GATHER: MUST(ncclGather(src, dst, s->n, s->type, s->root, r->comm, q)); break;
	case SCATTER: MUST(ncclScatter(src, dst, s->n, s->type, s->root, r->comm, q)); break;
	default: start_messages(r, s);
	}
}

void step_fill(struct rank *r, const struct step *s)
{
	uint8_t *src = source(r, s), *dst = result(r, s);

	memset(r->dst, 0xff, ROOM);
	for (size_t i = 0; i < MAX_RANKS * MOST; i++)
		put(s->type, src, i, element(s, r->rank, i));
	if ((s->kind == ALL_REDUCE && s->in_place) || (s->kind == BCAST && r->rank == s->root))
		memcpy(dst, src, s->n * types[s->type].size);
	if (s->kind == ALL_GATHER && s->in_place)
		memcpy(at(dst, s, (size_t)r->rank * s->n), src, s->n * types[s->type].size);
}

static void check_messages(const struct rank *r, const struct step *s)
{
	uint64_t seed = s->seed;

	for (int k = 0; k < PAIRS; k++) {
		int from = (int)(draw(&seed) % (uint64_t)r->nranks);
		int to = (int)(draw(&seed) % (uint64_t)r->nranks);
		size_t n = draw(&seed) % 3 ? draw(&seed) % MOST : 0;

		for (size_t i = 0; i < n && to == r->rank; i++)
			CHECK(has(s->type, result(r, s), (size_t)k * MOST + i,
				  element(s, from, i + (size_t)k)));
	}
}

/* What element i of dst must be after a step; false: it does not matter. */
static bool expected(const struct rank *r, const struct step *s, size_t i, uint64_t *out)
{
	int block = (int)(i / s->n);
	bool root = r->rank == s->root;

	switch (s->kind) {
	case ALL_REDUCE: *out = combined(s, r->nranks, i); return i < s->n;
	case REDUCE: *out = combined(s, r->nranks, i); return i < s->n && root;
	case REDUCE_SCATTER:
		*out = combined(s, r->nranks, (size_t)r->rank * s->n + i);
		return i < s->n;
	case BROADCAST:
	case BCAST: *out = element(s, s->root, i); return i < s->n;
	case ALL_GATHER: *out = element(s, block, i % s->n); return true;
	case ALL_TO_ALL: *out = element(s, block, (size_t)r->rank * s->n + i % s->n); return true;
	case GATHER: *out = element(s, block, i % s->n); return root;
	case SCATTER: *out = element(s, s->root, (size_t)r->rank * s->n + i); return i < s->n;
	default: return false;
	}
}

void step_check(struct rank *r, const struct step *s)
{
	uint64_t want;

	if (s->kind == MESSAGES)
		check_messages(r, s);
	for (size_t i = 0; i < s->n * (size_t)r->nranks; i++)
		CHECK(!expected(r, s, i, &want) || has(s->type, result(r, s), i, want));
}

/* ---- Programs -------------------------------------------------------------------------------- */

/* Checks y[i] for 100 elements after a sum of x[i] = rank + i with a factor. */
static void check_sum(const struct rank *r, float factor)
{
	const float *y = (const float *)(const void *)r->dst;
	int n = r->nranks;

	for (int i = 0; i < 100; i++) {
		float want = factor * (float)(n * i + n * (n - 1) / 2);

		CHECK(y[i] > want - 0.01f && y[i] < want + 0.01f);
	}
}

static address number_of(const void *p)
{
	return (address)(uintptr_t)p;
}

/* The factor is in device memory, and a stream writes it just before it is used. */
static void with_factor_of_device(struct rank *r)
{
	const float *x = (const float *)(const void *)r->src;
	float *y = (float *)(void *)r->dst, *factor = y + 1000, *next = y + 1001;
	ncclRedOp_t op;

	MUST(ncclRedOpCreatePreMulSum(&op, factor, ncclFloat32, ncclScalarDevice, r->comm));
	for (int k = 1; k < 4; k++) {
		*next = (float)k / 4;
		CHECK(cuMemcpyAsync(number_of(factor), number_of(next), sizeof(*next),
				    r->stream[0]) == 0);
		MUST(ncclAllReduce(x, y, 100, ncclFloat32, op, r->comm, r->stream[0]));
		finish(r);
		check_sum(r, (float)k / 4);
	}
	MUST(ncclGroupStart());
	MUST(ncclAllReduce(x, y, 100, ncclFloat32, op, r->comm, r->stream[0]));
	MUST(ncclRedOpDestroy(op, r->comm));
	MUST(ncclGroupEnd());
	finish(r);
	check_sum(r, 0.75f);
	CHECK(ncclAllReduce(x, y, 1, ncclFloat32, op, r->comm, r->stream[0]) ==
	      ncclInvalidArgument);
}

void run_means(struct rank *r)
{
	float *x = (float *)(void *)r->src, *y = (float *)(void *)r->dst, factor = 0.5f;
	ncclRedOp_t half;

	for (int i = 0; i < 100; i++)
		x[i] = (float)(r->rank + i);
	MUST(ncclAllReduce(x, y, 100, ncclFloat32, ncclAvg, r->comm, r->stream[0]));
	finish(r);
	check_sum(r, 1 / (float)r->nranks);
	/* made, used and freed in one group */
	MUST(ncclGroupStart());
	MUST(ncclRedOpCreatePreMulSum(&half, &factor, ncclFloat32, ncclScalarHostImmediate,
				      r->comm));
	MUST(ncclAllReduce(x, y, 100, ncclFloat32, half, r->comm, r->stream[0]));
	MUST(ncclRedOpDestroy(half, r->comm));
	MUST(ncclGroupEnd());
	finish(r);
	check_sum(r, factor);
	with_factor_of_device(r);
}

/* A sum on one stream; a copy of it and another sum on the other; and back. The sums of k rounds
 * are nranks to the power of 2 k times the first element. */
void run_events(struct rank *r)
{
	enum { N = 1000, ROUNDS = 3 };
	int64_t *x = (int64_t *)(void *)r->src, *y = x + N, factor = 1;
	void *events[2];

	for (int k = 0; k < 2; k++)
		CHECK(cuEventCreate(&events[k], 2) == 0);
	for (int i = 0; i < N; i++)
		x[i] = i;
	for (int k = 0; k < ROUNDS; k++) {
		MUST(ncclAllReduce(x, y, N, ncclInt64, ncclSum, r->comm, r->stream[0]));
		CHECK(cuEventRecord(events[0], r->stream[0]) == 0 &&
		      cuStreamWaitEvent(r->stream[1], events[0], 0) == 0);
		CHECK(cuMemcpyAsync(number_of(x), number_of(y), N * sizeof(*x), r->stream[1]) == 0);
		MUST(ncclAllReduce(x, x, N, ncclInt64, ncclSum, r->comm, r->stream[1]));
		CHECK(cuEventRecord(events[1], r->stream[1]) == 0 &&
		      cuStreamWaitEvent(r->stream[0], events[1], 0) == 0);
		factor *= r->nranks * r->nranks;
	}
	finish(r);
	for (int i = 0; i < N; i++)
		CHECK(x[i] == factor * i);
	for (int k = 0; k < 2; k++)
		cuEventDestroy_v2(events[k]);
}

/* The sum of what the ranks have, sent round the ring. */
void run_graph(struct rank *r)
{
	enum { N = 1000, ROUNDS = 4 };
	int64_t *x = (int64_t *)(void *)r->src, *y = x + N, *z = y + N;
	int after = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
	void *graph, *launched;

	CHECK(cuStreamBeginCapture_v2(r->stream[0], 2) == 0);
	MUST(ncclAllReduce(x, y, N, ncclInt64, ncclSum, r->comm, r->stream[0]));
	MUST(ncclGroupStart());
	MUST(ncclSend(x, N, ncclInt64, after, r->comm, r->stream[0]));
	MUST(ncclRecv(z, N, ncclInt64, before, r->comm, r->stream[0]));
	MUST(ncclGroupEnd());
	CHECK(cuStreamEndCapture(r->stream[0], &graph) == 0);
	CHECK(cuGraphInstantiateWithFlags(&launched, graph, 0) == 0);
	for (int k = 0; k < ROUNDS; k++) {
		for (int i = 0; i < N; i++)
			x[i] = k * i + r->rank;
		CHECK(cuGraphLaunch(launched, r->stream[0]) == 0);
		finish(r);
		for (int i = 0; i < N; i++)
			CHECK(y[i] == r->nranks * k * i + r->nranks * (r->nranks - 1) / 2 &&
			      z[i] == k * i + before);
	}
	cuGraphExecDestroy(launched);
	cuGraphDestroy(graph);
}
