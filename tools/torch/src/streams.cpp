#include "streams.hpp"

#include <kolo/kolo_cuda.h>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/utils/pybind.h>

#include <thread>

namespace kolo
{

namespace
{

c10::impl::VirtualGuardImpl implOf(const at::Device &device)
{
	return c10::impl::VirtualGuardImpl(device.type());
}

// CUDA's name of a stream. Torch before 2.15 tells it in Python only.
CUstream_st *handleOf(const c10::Stream &stream)
{
	const pybind11::gil_scoped_acquire acquired;
	const auto made =
		pybind11::module_::import("torch.cuda")
			.attr("Stream")(pybind11::arg("stream_id") = stream.id(),
					pybind11::arg("device_index") = static_cast<int>(stream.device_index()),
					pybind11::arg("device_type") = static_cast<int>(stream.device_type()));
	return reinterpret_cast<CUstream_st *>(made.attr("cuda_stream").cast<uintptr_t>());
}

// Of the current stream: it is the operations'.
class StreamPlace : public Place
{
      public:
	StreamPlace(kolo_comm *on, kolo_queue *by, const at::Device &device)
	    : Place(on, by), options_(at::TensorOptions().dtype(at::kByte).device(device))
	{
	}
	void *room(size_t bytes) override
	{
		room_ = at::empty({ static_cast<int64_t>(bytes) }, options_);
		return room_.data_ptr();
	}
	void copy(void *to, const void *from, size_t bytes) override
	{
		view(to, bytes).copy_(view(const_cast<void *>(from), bytes));
	}

      private:
	at::Tensor view(void *at, size_t bytes) const
	{
		return at::from_blob(at, { static_cast<int64_t>(bytes) }, options_);
	}

	const at::TensorOptions options_;
	at::Tensor room_; // torch gives its memory to what comes later on the stream
};

} // namespace

// ---- Works --------------------------------------------------------------------------------------------------------

void Health::end()
{
	std::lock_guard<std::mutex> lock(lock_);
	comm_ = nullptr;
}

int Health::status()
{
	std::lock_guard<std::mutex> lock(lock_);
	return comm_ ? kolo_comm_status(comm_) : 0;
}

StreamOperation::StreamOperation(int rank, c10d::OpType type, const std::string &title, Name name,
				 std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs,
				 const c10::Stream &stream, std::shared_ptr<Health> health)
    : Operation(rank, type, title, std::move(name), std::move(inputs), std::move(outputs)), stream_(stream),
      end_(stream.device_type()), health_(std::move(health))
{
}

// A communicator that fails lets its streams go on, so the end may be that of a failure.
bool StreamOperation::isCompleted()
{
	std::lock_guard<std::mutex> lock(own_);
	if (Work::isCompleted())
		return true;
	if (!end_.query())
		return false;
	const int rc = health_->status();
	complete(rc < 0 ? name().failure(rc) : nullptr);
	return true;
}

void StreamOperation::synchronize()
{
	end_.block(implOf(stream_.device()).getStream(stream_.device()));
}

bool StreamOperation::wait(std::chrono::milliseconds timeout)
{
	constexpr std::chrono::microseconds PAUSE(50);
	const auto until = std::chrono::steady_clock::now() + timeout;
	synchronize();
	while (timeout.count() > 0 && !isCompleted()) {
		TORCH_CHECK_WITH(DistBackendError, std::chrono::steady_clock::now() < until, "kolo: ", name().group,
				 ": ", name().op, " number ", name().number, ": the timeout is over after ",
				 timeout.count(), " ms");
		std::this_thread::sleep_for(PAUSE);
	}
	if (Work::isCompleted() && exception())
		std::rethrow_exception(exception());
	const int rc = health_->status();
	if (rc < 0)
		std::rethrow_exception(name().failure(rc));
	return true;
}

// As torch has it for streams, a future is complete at once: its callbacks have streams that wait.
c10::intrusive_ptr<c10::ivalue::Future> StreamOperation::getFuture()
{
	std::lock_guard<std::mutex> lock(own_);
	if (!future_) {
		const c10::StreamGuard guard(stream_);
		future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
								   std::vector<c10::Device>{ stream_.device() });
		future_->markCompleted(c10::IValue(result()));
	}
	return future_;
}

// ---- The stream ---------------------------------------------------------------------------------------------------

Streams::Streams(kolo_comm *comm, const at::Device &device, const Name &name)
    : comm_(comm), device_(device), stream_(implOf(device).getStreamFromGlobalPool(device, true)),
      health_(std::make_shared<Health>(comm))
{
	const c10::DeviceGuard guard(device_);
	int rc = kolo_cuda_queue_create(handleOf(stream_), &queue_);
	if (rc == 0)
		rc = kolo_cuda_connect(comm_, queue_);
	if (rc == 0)
		return;
	const auto failure = name.failure(rc);
	kolo_queue_destroy(queue_);
	std::rethrow_exception(failure);
}

Streams::~Streams()
{
	health_->end();
	kolo_queue_destroy(queue_);
}

// What comes on the stream waits for what the caller's current stream has.
void Streams::follow()
{
	c10::Event event(device_.type());
	event.record(implOf(device_).getStream(device_));
	event.block(stream_);
}

int Streams::record(const std::vector<at::Tensor> &tensors, const Job &job)
{
	const auto impl = implOf(device_);
	follow();
	const c10::StreamGuard guard(stream_);
	for (const auto &tensor : tensors)
		impl.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
	StreamPlace place(comm_, queue_, device_);
	return job(place);
}

bool Streams::isIdle() const noexcept
{
	try {
		return stream_.query();
	} catch (const std::exception &) {
		return true;
	}
}

void Streams::finish()
{
	follow();
	stream_.synchronize();
}

} // namespace kolo
