// CUDA tensors: operations on a stream, between what the caller's streams do. Of CUDA it knows what torch has for all
// devices, so it needs nothing of CUDA to be built.
#pragma once

#include "place.hpp"
#include "work.hpp"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>

namespace kolo
{

// What an operation does, in its place: 0 or an error of Kolo's.
using Job = std::function<int(Place &)>;

// What has become of a communicator. Works ask, which may outlive it.
class Health
{
      public:
	explicit Health(kolo_comm *comm) : comm_(comm) {}
	void end();   // before the communicator is destroyed
	int status(); // 0, or Kolo's error, with its text in kolo_last_error

      private:
	std::mutex lock_;
	kolo_comm *comm_;
};

// An operation on a stream. It is complete when the stream has done it. To wait for it is to make the caller's current
// stream wait.
class StreamOperation : public Operation
{
      public:
	StreamOperation(int rank, c10d::OpType type, const std::string &title, Name name,
			std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs, const c10::Stream &stream,
			std::shared_ptr<Health> health);
	void end() { end_.record(stream_); } // all of it is on the stream

	bool isCompleted() override;
	// Raises what is known to have failed. With a timeout the caller is blocked until it is over.
	bool wait(std::chrono::milliseconds timeout) override;
	void synchronize() override;
	c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

      private:
	const c10::Stream stream_;
	c10::Event end_;
	std::shared_ptr<Health> health_;
	std::mutex own_; // of the check whether it is over, and of the future
	c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A rank's GPU in a group, and the stream on which its operations are done.
class Streams
{
      public:
	// Joins the GPUs of all ranks: a collective. Raises what `name` makes of a failure.
	Streams(kolo_comm *comm, const at::Device &device, const Name &name);
	~Streams();
	Streams(const Streams &) = delete;
	Streams &operator=(const Streams &) = delete;

	const at::Device &device() const { return device_; }
	const c10::Stream &stream() const { return stream_; }
	const std::shared_ptr<Health> &health() const { return health_; }
	// Puts what the job does on the stream, behind what the caller's current stream has. Kolo's error.
	int record(const std::vector<at::Tensor> &tensors, const Job &job);
	// Blocks until all that is on the stream, and on the caller's current one, is done.
	void finish();
	// Is all of it done? A GPU that has failed, or is gone as the process ends, does nothing more.
	bool isIdle() const noexcept;

      private:
	void follow();

	kolo_comm *const comm_;
	const at::Device device_;
	const c10::Stream stream_;
	kolo_queue *queue_ = nullptr;
	std::shared_ptr<Health> health_;
};

} // namespace kolo
