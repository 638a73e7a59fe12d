/* A program that was built for NCCL, for test_nccl.py: it knows NCCL's interface and CUDA's driver,
 * here one made of threads (fake_cuda.c).
 *
 * usage: nccl_client MODE NRANKS
 *
 * MODE: processes | threads | one (thread for all ranks): random programs of all operations, in
 * groups and alone, on two streams, with split communicators; a GPU for each rank, or, with
 * T_SHARE=1, one for all. nonblocking: the same by threads, with communicators that don't block.
 * die: rank 1 is killed; the others are told. abort: threads abort while others are in operations.
 * wrong: what is refused. Returns 1 after a result that is not right, with a line that says so. */
#include "cuda/nccl/types.h"

#include "cuda/nccl/functions.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long address;

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(address *out, size_t len);
int cuMemFree_v2(address memory);
int cuStreamCreate(cudaStream_t *out, unsigned flags);
int cuStreamDestroy_v2(cudaStream_t stream);
int cuStreamSynchronize(cudaStream_t stream);

enum { MAX_RANKS = 8, MOST = 5000, STREAMS = 2, PAIRS = 5 };

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what))                                                                       \
			wrong(#what, __LINE__);                                                    \
	} while (0)

static void wrong(const char *what, int line)
{
	printf("nccl_client.c:%d: not true: %s (%s)\n", line, what, ncclGetLastError(NULL));
	fflush(stdout);
	_exit(1);
}

static void must(ncclResult_t result, const char *what, int line)
{
	if (result == ncclSuccess)
		return;
	printf("nccl_client.c:%d: %s: %s: %s\n", line, what, ncclGetErrorString(result),
	       ncclGetLastError(NULL));
	fflush(stdout);
	_exit(1);
}

#define MUST(call) must(call, #call, __LINE__)

static uint64_t draw(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

static int number(const char *name, int otherwise)
{
	const char *text = getenv(name);

	return text && *text ? atoi(text) : otherwise;
}

/* ---- A rank ---------------------------------------------------------------------------------- */

struct rank {
	ncclComm_t comm;
	int rank, nranks;
	void *context;
	cudaStream_t stream[STREAMS];
	int32_t *src, *dst; /* MAX_RANKS * MOST elements */
};

static void *allocate(size_t len)
{
	address at;

	CHECK(cuMemAlloc_v2(&at, len) == 0);
	return (void *)(uintptr_t)at;
}

static void prepare(struct rank *r, int rank, int nranks)
{
	*r = (struct rank){ .rank = rank, .nranks = nranks };
	CHECK(cuInit(0) == 0);
	CHECK(cuDevicePrimaryCtxRetain(&r->context, number("T_SHARE", 0) ? 0 : rank) == 0);
	CHECK(cuCtxSetCurrent(r->context) == 0);
	for (int k = 0; k < STREAMS; k++)
		CHECK(cuStreamCreate(&r->stream[k], 1) == 0);
	r->src = allocate(MAX_RANKS * MOST * sizeof(int32_t));
	r->dst = allocate(MAX_RANKS * MOST * sizeof(int32_t));
}

static void give_back(struct rank *r)
{
	for (int k = 0; k < STREAMS; k++)
		cuStreamDestroy_v2(r->stream[k]);
	cuMemFree_v2((address)(uintptr_t)r->src);
	cuMemFree_v2((address)(uintptr_t)r->dst);
}

static void await(ncclComm_t comm)
{
	ncclResult_t state = ncclInProgress;

	while (state == ncclInProgress) {
		MUST(ncclCommGetAsyncError(comm, &state));
		usleep(500);
	}
	must(state, "the communicator", __LINE__);
}

/* ---- Steps of a program ---------------------------------------------------------------------- */

/* A step that all ranks know. */
struct step {
	int kind, root, stream;
	size_t n;
	ncclRedOp_t op;
	bool in_place;
	uint64_t seed; /* of its elements, and of what is in its group */
};

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

static struct step choose(uint64_t *seed, int nranks)
{
	static const size_t lengths[] = { 0, 1, 3, 100, 777, MOST };
	static const ncclRedOp_t ops[] = { ncclSum, ncclMax, ncclMin, ncclProd };
	struct step s = { .kind = (int)(draw(seed) % KINDS) };

	s.root = (int)(draw(seed) % (uint64_t)nranks);
	s.stream = (int)(draw(seed) % STREAMS);
	s.n = lengths[draw(seed) % 6];
	s.op = ops[draw(seed) % 4];
	s.in_place = draw(seed) % 2;
	s.seed = draw(seed);
	return s;
}

/* What rank has at i. */
static int32_t element(const struct step *s, int rank, size_t i)
{
	return (int32_t)((s->seed + (uint64_t)rank * 31 + i * 7) % 5) + 1;
}

static int32_t combined(const struct step *s, int nranks, size_t i)
{
	int32_t sum = element(s, 0, i);

	for (int r = 1; r < nranks; r++) {
		int32_t x = element(s, r, i);

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
			MUST(ncclRecv(r->dst + k * MOST, n, ncclInt32, from, r->comm,
				      r->stream[k % STREAMS]));
		if (from == r->rank)
			MUST(ncclSend(r->src + k, n, ncclInt32, to, r->comm, r->stream[s->stream]));
	}
	MUST(ncclGroupEnd());
}

/* Puts a step on the rank's stream. */
static void start(struct rank *r, const struct step *s)
{
	cudaStream_t q = r->stream[s->stream];
	size_t mine = (size_t)r->rank * s->n;
	int32_t *src = r->src, *dst = r->dst;

	switch (s->kind) {
	case ALL_REDUCE:
		MUST(ncclAllReduce(s->in_place ? dst : src, dst, s->n, ncclInt32, s->op, r->comm,
				   q));
		break;
	case REDUCE: MUST(ncclReduce(src, dst, s->n, ncclInt32, s->op, s->root, r->comm, q)); break;
	case REDUCE_SCATTER:
		MUST(ncclReduceScatter(src, dst, s->n, ncclInt32, s->op, r->comm, q));
		break;
	case BROADCAST: MUST(ncclBroadcast(src, dst, s->n, ncclInt32, s->root, r->comm, q)); break;
	case BCAST: MUST(ncclBcast(dst, s->n, ncclInt32, s->root, r->comm, q)); break;
	case ALL_GATHER:
		MUST(ncclAllGather(s->in_place ? dst + mine : src, dst, s->n, ncclInt32, r->comm,
				   q));
		break;
	case ALL_TO_ALL: MUST(ncclAlltoAll(src, dst, s->n, ncclInt32, r->comm, q)); break;
	case GATHER: MUST(ncclGather(src, dst, s->n, ncclInt32, s->root, r->comm, q)); break;
	case SCATTER: MUST(ncclScatter(src, dst, s->n, ncclInt32, s->root, r->comm, q)); break;
	default: start_messages(r, s);
	}
}

/* What the rank has before a step. */
static void fill(struct rank *r, const struct step *s)
{
	for (size_t i = 0; i < MAX_RANKS * MOST; i++) {
		r->src[i] = element(s, r->rank, i);
		r->dst[i] = -1;
	}
	for (size_t i = 0; i < s->n; i++)
		if (s->kind == ALL_REDUCE && s->in_place)
			r->dst[i] = r->src[i];
		else if (s->kind == BCAST)
			r->dst[i] = r->rank == s->root ? r->src[i] : -2;
	if (s->kind == ALL_GATHER && s->in_place)
		memcpy(r->dst + (size_t)r->rank * s->n, r->src, s->n * sizeof(int32_t));
}

static void check_messages(const struct rank *r, const struct step *s)
{
	uint64_t seed = s->seed;

	for (int k = 0; k < PAIRS; k++) {
		int from = (int)(draw(&seed) % (uint64_t)r->nranks);
		int to = (int)(draw(&seed) % (uint64_t)r->nranks);
		size_t n = draw(&seed) % 3 ? draw(&seed) % MOST : 0;

		for (size_t i = 0; i < n && to == r->rank; i++)
			CHECK(r->dst[(size_t)k * MOST + i] == element(s, from, i + (size_t)k));
	}
}

/* What element i of dst must be after a step; false: it does not matter. */
static bool expected(const struct rank *r, const struct step *s, size_t i, int32_t *out)
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

static void check(struct rank *r, const struct step *s)
{
	int32_t want;

	if (s->kind == MESSAGES)
		check_messages(r, s);
	for (size_t i = 0; i < s->n * (size_t)r->nranks; i++)
		CHECK(!expected(r, s, i, &want) || r->dst[i] == want);
}

static void finish(struct rank *r)
{
	for (int k = 0; k < STREAMS; k++)
		CHECK(cuStreamSynchronize(r->stream[k]) == 0);
}

/* ---- Programs -------------------------------------------------------------------------------- */

static void program(struct rank *r, uint64_t seed)
{
	int steps = number("T_STEPS", 150);

	for (int k = 0; k < steps; k++) {
		struct step s = choose(&seed, r->nranks);

		fill(r, &s);
		start(r, &s);
		finish(r);
		check(r, &s);
	}
}

static void mean(struct rank *r)
{
	float *x = (float *)(void *)r->src, *y = (float *)(void *)r->dst, factor = 0.5f;
	ncclRedOp_t half;

	for (int i = 0; i < 100; i++)
		x[i] = (float)(r->rank + i);
	MUST(ncclAllReduce(x, y, 100, ncclFloat32, ncclAvg, r->comm, r->stream[0]));
	finish(r);
	for (int i = 0; i < 100; i++)
		CHECK(y[i] > (float)i + (float)(r->nranks - 1) / 2 - 0.01f &&
		      y[i] < (float)i + (float)(r->nranks - 1) / 2 + 0.01f);
	/* made, used and freed in one group */
	MUST(ncclGroupStart());
	MUST(ncclRedOpCreatePreMulSum(&half, &factor, ncclFloat32, ncclScalarHostImmediate,
				      r->comm));
	MUST(ncclAllReduce(x, y, 100, ncclFloat32, half, r->comm, r->stream[0]));
	MUST(ncclRedOpDestroy(half, r->comm));
	MUST(ncclGroupEnd());
	finish(r);
	for (int i = 0; i < 100; i++)
		CHECK(y[i] == 0.5f * (float)(r->nranks * i + r->nranks * (r->nranks - 1) / 2));
}

/* Even and odd ranks apart, in the reverse order; the last one is in none. */
static void split(struct rank *r, bool blocks)
{
	struct rank half = *r;
	bool none = r->rank == r->nranks - 1 && r->nranks > 1;
	ncclResult_t result =
		ncclCommSplit(r->comm, none ? -1 : r->rank % 2, -r->rank, &half.comm, NULL);

	CHECK(result == ncclSuccess || (result == ncclInProgress && !blocks));
	CHECK(!half.comm == none);
	await(r->comm);
	if (half.comm) {
		await(half.comm);
		MUST(ncclCommCount(half.comm, &half.nranks));
		MUST(ncclCommUserRank(half.comm, &half.rank));
		CHECK(half.nranks == (r->nranks - (r->nranks > 1) + 1 - r->rank % 2) / 2);
		program(&half, 99 + (uint64_t)(r->rank % 2));
		result = ncclCommFinalize(half.comm);
		CHECK(result == ncclSuccess || (result == ncclInProgress && !blocks));
		await(half.comm);
		MUST(ncclCommDestroy(half.comm));
	}
}

static void run_rank(struct rank *r, const ncclUniqueId *id, bool blocks)
{
	ncclConfig_t config = { .size = sizeof(config),
				.magic = NCCL_CONFIG_MAGIC,
				.version = 23007,
				.blocking = blocks };
	ncclResult_t result = ncclCommInitRankConfig(&r->comm, r->nranks, *id, r->rank, &config);
	int count, rank, device;

	CHECK(result == ncclSuccess || (result == ncclInProgress && !blocks));
	await(r->comm);
	MUST(ncclCommCount(r->comm, &count));
	MUST(ncclCommUserRank(r->comm, &rank));
	MUST(ncclCommCuDevice(r->comm, &device));
	CHECK(count == r->nranks && rank == r->rank);
	CHECK(device == (number("T_SHARE", 0) ? 0 : r->rank));
	program(r, (uint64_t)number("T_SEED", 7));
	mean(r);
	split(r, blocks);
	MUST(ncclCommDestroy(r->comm));
	CHECK(ncclCommDestroy(r->comm) == ncclInvalidArgument);
}

/* ---- Ranks as processes, threads, one thread ------------------------------------------------- */

struct shared {
	_Atomic int has_id;
	ncclUniqueId id;
	_Atomic int ready;
};

static struct shared *share(void)
{
	return mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		    -1, 0);
}

static void get_id(struct shared *s, int rank)
{
	if (rank == 0) {
		MUST(ncclGetUniqueId(&s->id));
		s->has_id = 1;
	}
	while (!s->has_id)
		usleep(500);
}

static int for_processes(int nranks, void (*fn)(struct rank *r, const ncclUniqueId *id), int killed)
{
	struct shared *s = share();
	pid_t pids[MAX_RANKS];
	int bad = 0, status;

	for (int k = 0; k < nranks; k++) {
		pids[k] = fork();
		if (pids[k] == 0) {
			struct rank r;

			get_id(s, k);
			prepare(&r, k, nranks);
			fn(&r, &s->id);
			give_back(&r);
			exit(0);
		}
	}
	for (int k = 0; k < nranks; k++) {
		waitpid(pids[k], &status, 0);
		bad += k == killed ? !WIFSIGNALED(status) : status != 0;
	}
	return bad != 0;
}

static void run_blocking(struct rank *r, const ncclUniqueId *id)
{
	run_rank(r, id, true);
}

struct thread {
	struct shared *shared;
	int rank, nranks;
	void (*fn)(struct rank *r, const ncclUniqueId *id);
};

static void *run_thread(void *arg)
{
	const struct thread *t = arg;
	struct rank r;

	get_id(t->shared, t->rank);
	prepare(&r, t->rank, t->nranks);
	t->fn(&r, &t->shared->id);
	give_back(&r);
	return NULL;
}

static void for_threads(int nranks, void (*fn)(struct rank *r, const ncclUniqueId *id))
{
	struct shared *s = share();
	struct thread threads[MAX_RANKS];
	pthread_t ids[MAX_RANKS];

	for (int k = 0; k < nranks; k++) {
		threads[k] = (struct thread){ s, k, nranks, fn };
		CHECK(pthread_create(&ids[k], NULL, run_thread, &threads[k]) == 0);
	}
	for (int k = 0; k < nranks; k++)
		pthread_join(ids[k], NULL);
}

static void run_nonblocking(struct rank *r, const ncclUniqueId *id)
{
	run_rank(r, id, false);
}

/* One thread with all ranks, as ncclCommInitAll makes them. */
static void run_all(int nranks)
{
	struct rank ranks[MAX_RANKS];
	ncclComm_t comms[MAX_RANKS];
	uint64_t seed = 11;
	int steps = number("T_STEPS", 150);

	for (int k = 0; k < nranks; k++)
		prepare(&ranks[k], k, nranks);
	MUST(ncclCommInitAll(comms, nranks, NULL));
	for (int k = 0; k < nranks; k++)
		ranks[k].comm = comms[k];
	for (int i = 0; i < steps; i++) {
		struct step s = choose(&seed, nranks);

		for (int k = 0; k < nranks; k++)
			fill(&ranks[k], &s);
		MUST(ncclGroupStart());
		for (int k = 0; k < nranks; k++)
			start(&ranks[k], &s);
		MUST(ncclGroupEnd());
		for (int k = 0; k < nranks; k++)
			finish(&ranks[k]);
		for (int k = 0; k < nranks; k++)
			check(&ranks[k], &s);
	}
	MUST(ncclGroupStart());
	for (int k = 0; k < nranks; k++)
		MUST(ncclCommDestroy(comms[k]));
	MUST(ncclGroupEnd());
	for (int k = 0; k < nranks; k++)
		give_back(&ranks[k]);
}

/* ---- Many at once ---------------------------------------------------------------------------- */

enum { MANY_STREAMS = 40, MANY_SPLITS = 20 };

/* Two splits of one communicator in one group, again and again; and a group on many streams. */
static void many(struct rank *r, const ncclUniqueId *id)
{
	cudaStream_t streams[MANY_STREAMS];
	ncclComm_t all, half;
	int count;

	MUST(ncclCommInitRank(&r->comm, r->nranks, *id, r->rank));
	for (int k = 0; k < MANY_SPLITS; k++) {
		MUST(ncclGroupStart());
		MUST(ncclCommSplit(r->comm, 0, r->rank, &all, NULL));
		MUST(ncclCommSplit(r->comm, r->rank % 2, -r->rank, &half, NULL));
		MUST(ncclGroupEnd());
		MUST(ncclCommCount(all, &count));
		CHECK(count == r->nranks);
		MUST(ncclCommCount(half, &count));
		CHECK(count == (r->nranks + 1 - r->rank % 2) / 2);
		MUST(ncclCommDestroy(all));
		MUST(ncclCommDestroy(half));
	}
	for (int k = 0; k < MANY_STREAMS; k++)
		CHECK(cuStreamCreate(&streams[k], 1) == 0);
	MUST(ncclGroupStart());
	for (int k = 0; k < MANY_STREAMS; k++) {
		r->src[k] = k;
		MUST(ncclSend(r->src + k, 1, ncclInt32, (r->rank + 1) % r->nranks, r->comm,
			      streams[k]));
		MUST(ncclRecv(r->dst + k, 1, ncclInt32, (r->rank + r->nranks - 1) % r->nranks,
			      r->comm, streams[k]));
	}
	MUST(ncclGroupEnd());
	for (int k = 0; k < MANY_STREAMS; k++) {
		CHECK(cuStreamSynchronize(streams[k]) == 0);
		CHECK(r->dst[k] == k);
		cuStreamDestroy_v2(streams[k]);
	}
	MUST(ncclCommFinalize(r->comm));
	MUST(ncclCommDestroy(r->comm));
}

/* ---- Failures -------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* What another thread hears that asks for the process's last error, as PyTorch's watchdog does. */
static void *ask_last_error(void *arg)
{
	char **out = arg;

	*out = strdup(ncclGetLastError(NULL));
	return NULL;
}

static void die(struct rank *r, const ncclUniqueId *id)
{
	ncclResult_t state = ncclSuccess;
	char *text;
	pthread_t thread;
	int64_t began;

	MUST(ncclCommInitRank(&r->comm, r->nranks, *id, r->rank));
	MUST(ncclAllReduce(r->src, r->dst, 100, ncclInt32, ncclSum, r->comm, r->stream[0]));
	finish(r);
	if (r->rank == 1) {
		usleep(100000);
		kill(getpid(), SIGKILL);
	}
	ncclAllReduce(r->src, r->dst, 100, ncclInt32, ncclSum, r->comm, r->stream[0]);
	began = now_ms();
	while (state == ncclSuccess && now_ms() - began < 10000)
		MUST(ncclCommGetAsyncError(r->comm, &state));
	CHECK(state == ncclRemoteError);
	CHECK(now_ms() - began < 4000); /* on a machine that does other things, too */
	CHECK(strstr(ncclGetLastError(r->comm), "rank 1 (pid "));
	CHECK(strstr(ncclGetLastError(r->comm), "died"));
	CHECK(pthread_create(&thread, NULL, ask_last_error, &text) == 0 &&
	      pthread_join(thread, NULL) == 0);
	CHECK(strstr(text, "rank 1 (pid "));
	free(text);
	CHECK(strcmp(ncclGetErrorString(state),
		     "remote process exited or there was a network error") == 0);
	CHECK(ncclAllReduce(r->src, r->dst, 100, ncclInt32, ncclSum, r->comm, r->stream[0]) ==
	      ncclRemoteError);
	MUST(ncclCommAbort(r->comm));
}

static void *abort_later(void *arg)
{
	struct rank *r = arg;
	uint64_t seed = (uint64_t)r->rank + (uint64_t)now_ms();

	usleep((useconds_t)(draw(&seed) % 3000));
	MUST(ncclGroupStart()); /* as PyTorch does */
	MUST(ncclCommAbort(r->comm));
	MUST(ncclGroupEnd());
	return NULL;
}

/* Every rank goes on until another thread of its own aborts, which may be before its operation:
 * then it is told that there is no such communicator. Rank 0 never comes to an operation. */
static void aborted(struct rank *r, const ncclUniqueId *id)
{
	ncclResult_t result = ncclSuccess;
	pthread_t thread;

	MUST(ncclCommInitRank(&r->comm, r->nranks, *id, r->rank));
	CHECK(pthread_create(&thread, NULL, abort_later, r) == 0);
	if (r->rank > 0)
		result = ncclAllReduce(r->src, r->dst, MOST, ncclInt32, ncclSum, r->comm,
				       r->stream[0]);
	CHECK(result == ncclSuccess || result == ncclRemoteError || result == ncclInvalidArgument);
	pthread_join(thread, NULL);
	finish(r);
}

static void *abort_one(void *comm)
{
	MUST(ncclCommAbort(comm));
	return NULL;
}

static void end_in_groups(struct rank *r)
{
	float factor = 1;
	ncclComm_t comm;
	ncclRedOp_t op;
	pthread_t thread;

	/* An op is freed at the end of a group, before its communicator. */
	MUST(ncclCommInitAll(&comm, 1, NULL));
	MUST(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
	MUST(ncclGroupStart());
	MUST(ncclRedOpDestroy(op, comm));
	MUST(ncclCommDestroy(comm));
	MUST(ncclGroupEnd());
	/* Aborted while a group has calls for it. */
	MUST(ncclCommInitAll(&comm, 1, NULL));
	MUST(ncclGroupStart());
	MUST(ncclAllReduce(r->src, r->dst, 1, ncclInt32, ncclSum, comm, r->stream[0]));
	CHECK(pthread_create(&thread, NULL, abort_one, comm) == 0 &&
	      pthread_join(thread, NULL) == 0);
	CHECK(ncclGroupEnd() == ncclRemoteError);
}

static void refused(struct rank *r, const ncclUniqueId *id)
{
	ncclComm_t comms[2];
	ncclConfig_t config = { 0 };
	ncclRedOp_t op;
	float factor = 1;
	void *handle;
	int version;

	CHECK(ncclCommInitRankConfig(&r->comm, r->nranks, *id, r->rank, &config) ==
	      ncclInvalidArgument);
	CHECK(ncclCommInitRank(&r->comm, r->nranks, *id, r->nranks) == ncclInvalidArgument);
	MUST(ncclCommInitRank(&r->comm, r->nranks, *id, r->rank));
	MUST(ncclGetVersion(&version));
	CHECK(version == number("T_VERSION", 22809));
	CHECK(ncclGroupEnd() == ncclInvalidUsage);
	CHECK(ncclAllReduce(r->src, r->dst, 1, ncclInt32, ncclSum, NULL, NULL) ==
	      ncclInvalidArgument);
	CHECK(ncclAllReduce(r->src, r->dst, 1, (ncclDataType_t)77, ncclSum, r->comm, NULL) ==
	      ncclInvalidArgument);
	CHECK(ncclAllReduce(r->src, r->dst, 1, ncclInt32, (ncclRedOp_t)10, r->comm, NULL) ==
	      ncclInvalidArgument);
	CHECK(ncclReduce(r->src, r->dst, 1, ncclInt32, ncclSum, 77, r->comm, NULL) ==
	      ncclInvalidArgument);
	CHECK(strstr(ncclGetLastError(r->comm), "root"));
	CHECK(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarDevice, r->comm) ==
	      ncclInvalidUsage);
	CHECK(ncclAllReduce(&version, &version, 1, ncclInt32, ncclSum, r->comm, r->stream[0]) ==
	      ncclInvalidArgument);
	CHECK(strstr(ncclGetLastError(r->comm), "ordinary memory"));
	MUST(ncclCommRegister(r->comm, r->src, 4096, &handle));
	MUST(ncclCommDeregister(r->comm, handle));
	MUST(ncclAllReduce(r->src, r->dst, 1, ncclInt32, ncclSum, r->comm,
			   NULL)); /* default stream */
	MUST(ncclMemAlloc(&handle, 1 << 16));
	MUST(ncclAllReduce(handle, handle, 100, ncclInt32, ncclSum, r->comm, r->stream[0]));
	finish(r);
	MUST(ncclCommFinalize(r->comm));
	CHECK(ncclAllReduce(r->src, r->dst, 1, ncclInt32, ncclSum, r->comm, r->stream[0]) ==
	      ncclInvalidUsage);
	MUST(ncclMemFree(handle));
	MUST(ncclCommDestroy(r->comm));
	CHECK(ncclCommDestroy(NULL) == ncclSuccess);
	CHECK(ncclAllReduce(r->src, r->dst, 1, ncclInt32, ncclSum, r->comm, NULL) ==
	      ncclInvalidArgument);
	CHECK(ncclCommInitAll(comms, 2, (const int[]){ 0, 99 }) == ncclUnhandledCudaError);
	CHECK(!comms[0] && !comms[1]);
	end_in_groups(r);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";
	int nranks = argc > 2 ? atoi(argv[2]) : 0;

	if (nranks < 1 || nranks > MAX_RANKS)
		return 2;
	if (strcmp(mode, "processes") == 0)
		return for_processes(nranks, run_blocking, -1);
	if (strcmp(mode, "die") == 0)
		return for_processes(nranks, die, 1);
	if (strcmp(mode, "abort") == 0)
		return for_processes(nranks, aborted, -1);
	if (strcmp(mode, "many") == 0)
		return for_processes(nranks, many, -1);
	if (strcmp(mode, "wrong") == 0)
		return for_processes(nranks, refused, -1);
	if (strcmp(mode, "threads") == 0)
		for_threads(nranks, run_blocking);
	else if (strcmp(mode, "nonblocking") == 0)
		for_threads(nranks, run_nonblocking);
	else if (strcmp(mode, "one") == 0)
		run_all(nranks);
	else
		return 2;
	return 0;
}
