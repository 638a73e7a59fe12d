// The backend: one rank of one process group.
#pragma once

#include "streams.hpp"
#include "tensors.hpp"
#include "work.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/version.h>

#include <deque>
#include <thread>

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 10
#define KOLO_TORCH_OPTIONS // c10d::Backend has getBackendOptions, getError, split
#endif

namespace kolo
{

using c10d::Work;
using Tensors = std::vector<at::Tensor>;
using Done = c10::intrusive_ptr<Work>;
using Milliseconds = std::chrono::milliseconds;

// How a process group is made.
struct Setup {
	c10::intrusive_ptr<c10d::Store> store;
	int rank, size;
	Milliseconds timeout;
	std::string group, backend;
};

// The communicator and the mailbox of a group, which end together.
struct Ends {
	kolo_comm *comm = nullptr;
	kolo_mailbox *mailbox = nullptr;
};

// Does the caller wait at once? Torch before 2.5 does not say.
template <class Options> auto callerWaits(const Options &opts, int) -> decltype(static_cast<bool>(opts.asyncOp))
{
	return !opts.asyncOp;
}
template <class Options> bool callerWaits(const Options &, long)
{
	return false;
}

#ifdef KOLO_TORCH_OPTIONS
struct GroupOptions : c10d::Backend::Options {
	using c10d::Backend::Options::Options;
};
#endif

class Backend : public c10d::Backend
{
      public:
	// Joins the group; blocks. Raises DistBackendError.
	explicit Backend(const Setup &setup);
	~Backend() override;

	// Before Python ends: ends the threads of all backends.
	static void restAll();

	const std::string getBackendName() const override { return name_; }
	bool supportsCoalescing() const { return true; } // it overrides from torch 2.5 on
	void startCoalescing() override;
	Done endCoalescing() override;
	uint64_t getSequenceNumberForGroup() override;
	void setSequenceNumberForGroup() override {}

	Done broadcast(Tensors &, const c10d::BroadcastOptions &) override;
	Done allreduce(Tensors &, const c10d::AllreduceOptions &) override;
	Done allreduce_sparse(Tensors &, const c10d::AllreduceOptions &) override;
	Done allreduce_coalesced(Tensors &, const c10d::AllreduceCoalescedOptions &) override;
	Done reduce(Tensors &, const c10d::ReduceOptions &) override;
	Done allgather(std::vector<Tensors> &, Tensors &, const c10d::AllgatherOptions &) override;
	Done allgather_coalesced(std::vector<Tensors> &, Tensors &, const c10d::AllgatherOptions &) override;
	Done _allgather_base(at::Tensor &, at::Tensor &, const c10d::AllgatherOptions &) override;
	Done allgather_into_tensor_coalesced(Tensors &, Tensors &, const c10d::AllgatherOptions &) override;
	Done reduce_scatter(Tensors &, std::vector<Tensors> &, const c10d::ReduceScatterOptions &) override;
	Done _reduce_scatter_base(at::Tensor &, at::Tensor &, const c10d::ReduceScatterOptions &) override;
	Done reduce_scatter_tensor_coalesced(Tensors &, Tensors &, const c10d::ReduceScatterOptions &) override;
	Done alltoall_base(at::Tensor &, at::Tensor &, std::vector<int64_t> &, std::vector<int64_t> &,
			   const c10d::AllToAllOptions &) override;
	Done alltoall(Tensors &, Tensors &, const c10d::AllToAllOptions &) override;
	Done gather(std::vector<Tensors> &, Tensors &, const c10d::GatherOptions &) override;
	Done scatter(Tensors &, std::vector<Tensors> &, const c10d::ScatterOptions &) override;
	Done barrier(const c10d::BarrierOptions &) override;
	void monitoredBarrier(const c10d::BarrierOptions &, bool) override;

	Done send(Tensors &, int, int) override;
	Done recv(Tensors &, int, int) override;
	Done recvAnysource(Tensors &, int) override;

	// Joins the GPUs of all ranks now, and not with the first operation.
	void eagerConnectSingleDevice(at::Device device) override;

	// These three override in later versions of torch.
	void setTimeout(Milliseconds timeout) { timeout_ = timeout; }
	void abort();
	void shutdown();
#ifdef KOLO_TORCH_OPTIONS
	c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override
	{
		return options_;
	}
	c10::intrusive_ptr<GroupOptions> options() const
	{
		return options_;
	}
	c10d::ErrorType getError() override;
	bool supportsSplitting() const override
	{
		return true;
	}
	c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &, const std::vector<int> &,
						const c10::intrusive_ptr<c10d::Backend::Options> &) override;
#endif

      private:
	struct Pending {
		c10::intrusive_ptr<Operation> operation;
		Job job;
		Milliseconds timeout;
	};

	// Does the job: on CUDA tensors, on the group's stream; else now or later. `waits`: the caller will wait at
	// once.
	Done submit(c10d::OpType type, const char *op, Tensors inputs, Tensors outputs, Milliseconds timeout,
		    bool waits, Job job);
	template <class Options>
	Done run(c10d::OpType type, const char *op, const Tensors &inputs, const Tensors &outputs, const Options &opts,
		 Job job)
	{
		return submit(type, op, inputs, outputs, opts.timeout, callerWaits(opts, 0), std::move(job));
	}
	template <class Options> Done reduceAll(c10d::OpType, const Tensors &, const Options &);
	Done gatherAll(c10d::OpType, const Tensors &, const Tensors &, const c10d::AllgatherOptions &);
	Done reduceScatterAll(c10d::OpType, const Tensors &, const Tensors &, const c10d::ReduceScatterOptions &);
	void perform(const Pending &pending);
	Done record(c10d::OpType type, const char *op, Tensors inputs, Tensors outputs, Milliseconds timeout,
		    const at::Device &device, const Job &job);
	void inTurn(const char *op, const std::function<void()> &call);
	bool hasJoined(); // the GPUs
	void join(const at::Device &device, const char *op);
	uint64_t next(); // operation's number
	void limit(Milliseconds timeout);
	void mustBeOpen(const char *op) const; // with lock_
	void work();
	void close(bool waits);
	void calm(std::unique_lock<std::mutex> &lock);
	void enlist();
	void rest();
	void endThreads(std::unique_lock<std::mutex> &lock);

	// Messages (messages.cpp).
	Done pass(Tensors &tensors, int peer, int tag, c10d::OpType type, const char *op);
	Done passOnStream(const at::Tensor &tensor, int peer, int tag, c10d::OpType type, const char *op);
	Done passTogether();
	void mustBePeer(int peer, const char *op) const;
	void move();
	Name nameOf(const char *op, uint64_t number) const;
	Done note(Done work);

	const std::string name_, group_;
	const int pid_;
	std::atomic<Milliseconds> timeout_;
	Ends ends_;
#ifdef KOLO_TORCH_OPTIONS
	c10::intrusive_ptr<GroupOptions> options_;
#endif

	// Collectives: guarded by lock_.
	std::mutex lock_;
	std::unique_ptr<std::condition_variable> changed_ = std::make_unique<std::condition_variable>();
	std::deque<Pending> pending_;
	bool running_ = false; // some thread does one
	bool closing_ = false, resting_ = false;
	uint64_t number_ = 0; // of operations so far
	int seconds_ = 0;     // the communicator's timeout
	std::unique_ptr<HostPlace> host_;
	std::unique_ptr<Streams> streams_; // null: no CUDA tensor has come
	std::thread worker_;

	// Messages: guarded by messages_lock_.
	std::mutex messages_lock_;
	std::unique_ptr<std::condition_variable> messages_changed_ = std::make_unique<std::condition_variable>();
	std::deque<c10::intrusive_ptr<Message>> messages_; // that may not be over
	bool messages_closing_ = false;
	uint64_t messages_number_ = 0;
	std::thread mover_;

	struct StreamMessage {
		at::Tensor tensor;
		Elements elements;
		int peer;
		bool sends;
		int pass(const Place &place) const;
	};
	std::vector<Done> batch_;
	std::vector<StreamMessage> together_; // of CUDA tensors, until the end of coalescing
	bool coalescing_ = false;
};

// The number of seconds of a timeout, as Kolo counts them.
int secondsOf(Milliseconds timeout);

// Calls call(k) for the messages k = 0 to n - 1 of a group of Kolo's. The first error.
int grouped(size_t n, const std::function<int(size_t k)> &call);

} // namespace kolo
