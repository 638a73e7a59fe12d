// What PyTorch's process groups call of NCCL, call by call, for test_nccl.py: communicators that
// don't block, a watchdog that asks for errors while operations run, splits, ends by finalizing,
// destroying, or aborting inside a group from the watchdog's thread.
//
// usage: nccl_group NRANKS TIMES
//
// Ranks are processes with a GPU each. Returns 1 after what is not right, with a line that says so.
#include "cuda/nccl/types.h"

extern "C" {
#include "cuda/nccl/functions.h"
}

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" {
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(unsigned long long *out, size_t len);
int cuStreamCreate(cudaStream_t *out, unsigned flags);
int cuStreamSynchronize(cudaStream_t stream);
}

namespace
{

constexpr int count = 3000;

struct Shared {
	std::atomic<int> generation;
	std::atomic<int> done; // ranks that have done the work of all turns so far
	ncclUniqueId id;
};

void check(bool good, const char *what, int line)
{
	if (good)
		return;
	std::printf("nccl_group.cc:%d: not true: %s (%s)\n", line, what, ncclGetLastError(nullptr));
	std::fflush(stdout);
	_exit(1);
}

#define CHECK(what) check(what, #what, __LINE__)

// As C10D_NCCL_CHECK_TIMEOUT: what is in progress is asked for again.
void ready(ncclResult_t result, ncclComm_t comm)
{
	while (result == ncclInProgress) {
		std::this_thread::yield();
		CHECK(ncclCommGetAsyncError(comm, &result) == ncclSuccess);
	}
	CHECK(result == ncclSuccess);
}

void pause()
{
	std::this_thread::sleep_for(std::chrono::microseconds(300));
}

class Group
{
      public:
	// may_fail: others may give up.
	Group(int rank, int nranks, const ncclUniqueId &id, bool may_fail) : may_fail(may_fail)
	{
		ncclConfig_t config = {};

		config.size = sizeof(config);
		config.magic = NCCL_CONFIG_MAGIC;
		config.version = 23007;
		config.blocking = 0;
		ncclResult_t result = ncclCommInitRankConfig(&comm, nranks, id, rank, &config);
		ready(result, comm);
		watch();
	}
	explicit Group(ncclComm_t made) : comm(made)
	{
		ready(ncclInProgress, comm);
		watch();
	}
	Group(const Group &) = delete;
	Group &operator=(const Group &) = delete;
	~Group()
	{
		stop();
	}

	// Waits until the child is there, then until it is ready.
	ncclComm_t split(int color, int key)
	{
		ncclComm_t child = nullptr;
		ncclConfig_t config = {};

		config.size = sizeof(config);
		config.magic = NCCL_CONFIG_MAGIC;
		config.version = 23007;
		config.blocking = 0;
		ncclResult_t result = ncclCommSplit(comm, color, key, &child, &config);
		CHECK(result == ncclSuccess || result == ncclInProgress);
		while (!child)
			std::this_thread::yield();
		return child;
	}

	void finalize()
	{
		ready(ncclCommFinalize(comm), comm);
		destroy();
	}

	void destroy()
	{
		stop();
		CHECK(ncclCommDestroy(comm) == ncclSuccess);
	}

	// From the watchdog's thread, as a rank that gives up does.
	void abort()
	{
		stop();
		std::thread([this] {
			CHECK(ncclGroupStart() == ncclSuccess);
			CHECK(ncclCommAbort(comm) == ncclSuccess);
			CHECK(ncclGroupEnd() == ncclSuccess);
		}).join();
	}

	ncclComm_t comm = nullptr;

      private:
	void watch()
	{
		watchdog = std::thread([this] {
			while (!over) {
				ncclResult_t state;

				CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
				CHECK(state == ncclSuccess || state == ncclInProgress ||
				      (may_fail && state == ncclRemoteError));
				pause();
			}
		});
	}
	void stop()
	{
		over = true;
		if (watchdog.joinable())
			watchdog.join();
	}

	bool may_fail = false;
	std::atomic<bool> over{ false };
	std::thread watchdog;
};

struct Buffers {
	float *src, *dst;
	cudaStream_t stream;
};

float *allocate(size_t n)
{
	unsigned long long at;

	CHECK(cuMemAlloc_v2(&at, n * sizeof(float)) == 0);
	return reinterpret_cast<float *>(at);
}

// What a step of training does, and its result.
void work(const Group &g, const Buffers &b, int rank, int nranks)
{
	float sum = 0;

	for (int i = 0; i < count; i++)
		b.src[i] = static_cast<float>(rank + 1);
	for (int r = 0; r < nranks; r++)
		sum += static_cast<float>(r + 1);
	ready(ncclAllReduce(b.src, b.dst, count, ncclFloat32, ncclSum, g.comm, b.stream), g.comm);
	ready(ncclReduceScatter(b.dst, b.src, count / static_cast<size_t>(nranks), ncclFloat32,
				ncclAvg, g.comm, b.stream),
	      g.comm);
	ready(ncclAllGather(b.src, b.dst, count / static_cast<size_t>(nranks), ncclFloat32, g.comm,
			    b.stream),
	      g.comm);
	CHECK(ncclGroupStart() == ncclSuccess); // as batch_isend_irecv does
	CHECK(ncclSend(b.dst, 100, ncclFloat32, (rank + 1) % nranks, g.comm, b.stream) ==
	      ncclSuccess);
	CHECK(ncclRecv(b.src, 100, ncclFloat32, (rank + nranks - 1) % nranks, g.comm, b.stream) ==
	      ncclSuccess);
	ready(ncclGroupEnd(), g.comm);
	CHECK(cuStreamSynchronize(b.stream) == 0);
	for (int i = 0; i < 100; i++)
		CHECK(b.src[i] > sum - 0.01f && b.src[i] < sum + 0.01f);
}

void life(Shared *shared, const Buffers &b, int rank, int nranks, int turn)
{
	if (rank == 0) {
		CHECK(ncclGetUniqueId(&shared->id) == ncclSuccess);
		shared->generation = turn;
	}
	while (shared->generation < turn)
		std::this_thread::yield();

	Group g(rank, nranks, shared->id, turn % 3 == 2);

	work(g, b, rank, nranks);
	if (turn % 4 == 1) {
		Group half(g.split(rank % 2, rank));

		work(half, b, rank / 2, (nranks + 1 - rank % 2) / 2);
		half.finalize();
	}
	// Whoever gives up ends what others still do.
	shared->done++;
	while (shared->done < turn * nranks)
		std::this_thread::yield();
	if (turn % 3 == 0) {
		g.finalize();
	} else if (turn % 3 == 1) {
		g.destroy();
	} else {
		// One that nobody else comes to is given up.
		if (rank == 0)
			ncclAllReduce(b.src, b.dst, count, ncclFloat32, ncclSum, g.comm, b.stream);
		g.abort();
		CHECK(cuStreamSynchronize(b.stream) == 0);
	}
}

int run(Shared *shared, int rank, int nranks, int times)
{
	Buffers b;
	void *context;

	CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, rank) == 0 &&
	      cuCtxSetCurrent(context) == 0 && cuStreamCreate(&b.stream, 1) == 0);
	b.src = allocate(count);
	b.dst = allocate(count);
	for (int turn = 1; turn <= times; turn++)
		life(shared, b, rank, nranks, turn);
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	int nranks = argc > 2 ? std::atoi(argv[1]) : 0, times = argc > 2 ? std::atoi(argv[2]) : 0;
	void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	Shared *shared = static_cast<Shared *>(memory);
	std::vector<pid_t> pids;
	int bad = 0;

	for (int rank = 0; rank < nranks; rank++) {
		pid_t pid = fork();

		if (pid == 0)
			std::exit(run(shared, rank, nranks, times));
		pids.push_back(pid);
	}
	for (size_t k = 0; k < pids.size(); k++) {
		int status;

		waitpid(pids[k], &status, 0);
		if (status != 0 && bad++ == 0)
			for (size_t other = k + 1; other < pids.size(); other++)
				kill(pids[other], SIGKILL); // it may wait for this one
	}
	return nranks < 1 || bad ? 1 : 0;
}
