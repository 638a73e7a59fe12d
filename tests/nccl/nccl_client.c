/* A program that was built for NCCL, for test_nccl.py: it knows NCCL's interface and CUDA's driver,
 * here one made of threads (fake_cuda.c).
 *
 * usage: nccl_client MODE NRANKS
 *
 * MODE: processes | threads | one (thread for all ranks): random programs of all operations, in
 * groups and alone, on two streams, with events, and split communicators; a GPU for each rank, or,
 * with T_SHARE=1, one for all. nonblocking: the same by threads, with communicators that don't
 * block. graph: a capture of processes. shrink: rank 1 leaves; T_BLOCKS=0: they don't block. die:
 * rank 1 is killed; the others are told. abort: threads abort while others are in operations.
 * alone: a rank aborts that waits for another. many: splits and streams. wrong: what is refused.
 * With NCCL_COMM_ID each process makes the id. Returns 1 after a result that is not right, with a
 * line that says so. */
#include "tests/nccl/nccl_program.h"

#include <dirent.h>
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

/* ---- A rank ---------------------------------------------------------------------------------- */

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
	r->src = allocate((PARTS + 1) * ROOM);
	r->dst = allocate((PARTS + 1) * ROOM);
}

static void give_back(struct rank *r)
{
	for (int k = 0; k < STREAMS; k++)
		cuStreamDestroy_v2(r->stream[k]);
	cuMemFree_v2((address)(uintptr_t)r->src);
	cuMemFree_v2((address)(uintptr_t)r->dst);
}

static ncclResult_t init(struct rank *r, const ncclUniqueId *id, bool blocks)
{
	ncclConfig_t config = { .size = sizeof(config),
				.magic = NCCL_CONFIG_MAGIC,
				.version = 23007,
				.blocking = blocks };

	r->blocks = blocks;
	return ncclCommInitRankConfig(&r->comm, r->nranks, *id, r->rank, &config);
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
		run_program(&half, 99 + (uint64_t)(r->rank % 2));
		result = ncclCommFinalize(half.comm);
		CHECK(result == ncclSuccess || (result == ncclInProgress && !blocks));
		await(half.comm);
		MUST(ncclCommDestroy(half.comm));
	}
}

static void run_rank(struct rank *r, const ncclUniqueId *id, bool blocks)
{
	ncclResult_t result = init(r, id, blocks);
	int count, rank, device;

	CHECK(result == ncclSuccess || (result == ncclInProgress && !blocks));
	await(r->comm);
	MUST(ncclCommCount(r->comm, &count));
	MUST(ncclCommUserRank(r->comm, &rank));
	MUST(ncclCommCuDevice(r->comm, &device));
	CHECK(count == r->nranks && rank == r->rank);
	CHECK(device == (number("T_SHARE", 0) ? 0 : r->rank));
	run_program(r, (uint64_t)number("T_SEED", 7));
	run_means(r);
	run_events(r);
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

/* What get_id leaves in *id; with NCCL_COMM_ID each rank makes it. */
static void choose_id(struct shared *s, int rank, ncclUniqueId *id)
{
	if (getenv("NCCL_COMM_ID")) {
		MUST(ncclGetUniqueId(id));
		return;
	}
	get_id(s, rank);
	*id = s->id;
}

static int for_processes(int nranks, void (*fn)(struct rank *r, const ncclUniqueId *id), int killed)
{
	struct shared *s = share();
	pid_t pids[MAX_RANKS];
	int bad = 0, status;

	for (int k = 0; k < nranks; k++) {
		pids[k] = fork();
		if (pids[k] == 0) {
			ncclUniqueId id;
			struct rank r;

			choose_id(s, k, &id);
			prepare(&r, k, nranks);
			fn(&r, &id);
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

	for (int k = 0; k < nranks; k++)
		prepare(&ranks[k], k, nranks);
	MUST(ncclCommInitAll(comms, nranks, NULL));
	for (int k = 0; k < nranks; k++)
		ranks[k].comm = comms[k];
	run_all_program(ranks, nranks, (uint64_t)number("T_SEED", 11));
	MUST(ncclGroupStart());
	for (int k = 0; k < nranks; k++)
		MUST(ncclCommDestroy(comms[k]));
	MUST(ncclGroupEnd());
	for (int k = 0; k < nranks; k++)
		give_back(&ranks[k]);
}

static void captured(struct rank *r, const ncclUniqueId *id)
{
	MUST(ncclCommInitRank(&r->comm, r->nranks, *id, r->rank));
	run_graph(r);
	MUST(ncclCommDestroy(r->comm));
}

/* ---- Many at once ---------------------------------------------------------------------------- */

enum { MANY_STREAMS = 40, MANY_SPLITS = 20 };

struct crossing {
	ncclComm_t first, second;
	struct rank *r;
	size_t at; /* elements before this thread's */
};

static void *cross(void *arg)
{
	enum { TIMES = 300 };
	const struct crossing *c = arg;
	int *src = (int *)(void *)c->r->src + c->at, *dst = (int *)(void *)c->r->dst + c->at;

	CHECK(cuCtxSetCurrent(c->r->context) == 0);
	for (int k = 0; k < TIMES; k++) {
		MUST(ncclGroupStart());
		MUST(ncclAllReduce(src, dst, 1, ncclInt32, ncclSum, c->first, c->r->stream[0]));
		MUST(ncclAllReduce(src, dst, 1, ncclInt32, ncclSum, c->second, c->r->stream[0]));
		MUST(ncclGroupEnd());
	}
	return NULL;
}

/* Two threads use two communicators in one group, each in its own order. */
static void use_crossed(struct rank *r)
{
	struct crossing here = { .r = r }, there = { .r = r, .at = 1 };
	pthread_t thread;

	MUST(ncclCommInitAll(&here.first, 1, &r->rank)); /* on its GPU */
	MUST(ncclCommInitAll(&here.second, 1, &r->rank));
	there.first = here.second;
	there.second = here.first;
	CHECK(pthread_create(&thread, NULL, cross, &there) == 0);
	cross(&here);
	pthread_join(thread, NULL);
	finish(r);
	MUST(ncclCommDestroy(here.first));
	MUST(ncclCommDestroy(here.second));
}

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
	use_crossed(r);
	MUST(ncclCommFinalize(r->comm));
	MUST(ncclCommDestroy(r->comm));
}

/* ---- Fewer ranks ----------------------------------------------------------------------------- */

enum { LEAVES = 1 };

static void shrink(struct rank *r, bool blocks)
{
	struct rank fewer = *r;
	int leaves[] = { LEAVES, LEAVES }, all[MAX_RANKS] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	ncclResult_t result;

	CHECK(ncclCommShrink(r->comm, &r->rank, 1, &fewer.comm, NULL, 0) == ncclInvalidArgument);
	CHECK(strstr(ncclGetLastError(r->comm), "not the caller's"));
	CHECK(ncclCommShrink(r->comm, all, r->nranks, &fewer.comm, NULL, 0) == ncclInvalidArgument);
	CHECK(ncclCommShrink(r->comm, all, 0, &fewer.comm, NULL, 0) == ncclInvalidArgument);
	if (r->rank == LEAVES)
		return;
	result = ncclCommShrink(r->comm, leaves, r->nranks > 2 ? 2 : 1, &fewer.comm, NULL, 0);
	CHECK(result == ncclSuccess || (result == ncclInProgress && !blocks));
	await(r->comm);
	await(fewer.comm);
	MUST(ncclCommCount(fewer.comm, &fewer.nranks));
	MUST(ncclCommUserRank(fewer.comm, &fewer.rank));
	CHECK(fewer.nranks == r->nranks - 1 && fewer.rank == r->rank - (r->rank > LEAVES));
	run_program(&fewer, 5);
	MUST(ncclCommDestroy(fewer.comm));
}

/* One rank leaves what the others go on with, with communicators that block and others. */
static void shrunk(struct rank *r, const ncclUniqueId *id)
{
	bool blocks = number("T_BLOCKS", 1);
	ncclResult_t result = init(r, id, blocks);

	CHECK(result == ncclSuccess || (result == ncclInProgress && !blocks));
	await(r->comm);
	shrink(r, blocks);
	run_program(r, 6);
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

/* Until it is made, or can't be. */
static ncclResult_t wait_until_made(ncclComm_t comm)
{
	ncclResult_t state = ncclInProgress, result = ncclSuccess;

	while (result == ncclSuccess && state == ncclInProgress) {
		result = ncclCommGetAsyncError(comm, &state);
		usleep(50);
	}
	return result == ncclSuccess ? state : result;
}

/* Every rank goes on until another thread of its own aborts, which may be before its operation, or
 * with T_BLOCKS=0 while the communicator is made: then it is told that there is no such
 * communicator. Rank 0 never comes to an operation. */
static void aborted(struct rank *r, const ncclUniqueId *id)
{
	bool blocks = number("T_BLOCKS", 1);
	ncclResult_t result = init(r, id, blocks);
	pthread_t thread;

	CHECK(result == (blocks ? ncclSuccess : ncclInProgress));
	CHECK(pthread_create(&thread, NULL, abort_later, r) == 0);
	result = wait_until_made(r->comm);
	if (r->rank > 0 && result == ncclSuccess)
		result = ncclAllReduce(r->src, r->dst, MOST, ncclInt32, ncclSum, r->comm,
				       r->stream[0]);
	CHECK(result == ncclSuccess || result == ncclRemoteError || result == ncclInvalidArgument);
	pthread_join(thread, NULL);
	finish(r);
}

static int count_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int n = 0;

	CHECK(tasks);
	while (readdir(tasks))
		n++;
	closedir(tasks);
	return n;
}

/* The other ranks never come. After an abort no thread of a communicator is left that waits for
 * them; the thread that serves the id may be. */
static void alone(struct rank *r, const ncclUniqueId *unused)
{
	enum { TIMES = 20 };
	uint64_t seed = 1;
	ncclUniqueId id;
	int before;

	(void)unused;
	r->nranks = 2;
	for (int k = 0; k < TIMES; k++) {
		ncclResult_t state;
		int64_t began;

		before = count_threads();
		MUST(ncclGetUniqueId(&id));
		CHECK(init(r, &id, false) == ncclInProgress);
		if (k % 2) /* else perhaps before its thread has begun */
			usleep((useconds_t)(draw(&seed) % 5000));
		MUST(ncclCommGetAsyncError(r->comm, &state));
		CHECK(state == ncclInProgress);
		began = now_ms();
		MUST(ncclCommAbort(r->comm));
		CHECK(now_ms() - began < 2000);
		CHECK(ncclCommGetAsyncError(r->comm, &state) == ncclInvalidArgument);
		while (count_threads() > before + 1 && now_ms() - began < 5000)
			usleep(1000);
		CHECK(count_threads() <= before + 1);
	}
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
	MUST(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarDevice, r->comm));
	CHECK(ncclAllReduce(r->src, r->dst, 1, ncclInt32, op, r->comm, r->stream[0]) ==
	      ncclInvalidArgument); /* of another type */
	MUST(ncclRedOpDestroy(op, r->comm));
	CHECK(ncclRedOpDestroy(op, r->comm) == ncclInvalidArgument);
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
	if (strcmp(mode, "graph") == 0)
		return for_processes(nranks, captured, -1);
	if (strcmp(mode, "abort") == 0)
		return for_processes(nranks, aborted, -1);
	if (strcmp(mode, "many") == 0)
		return for_processes(nranks, many, -1);
	if (strcmp(mode, "wrong") == 0)
		return for_processes(nranks, refused, -1);
	if (strcmp(mode, "shrink") == 0)
		return for_processes(nranks, shrunk, -1);
	if (strcmp(mode, "alone") == 0)
		return for_processes(1, alone, -1);
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
