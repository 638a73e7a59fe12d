// What torch gets back from a call: an operation under way.
#pragma once

#include <kolo/kolo_mailbox.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace kolo
{

// What an operation is called in profiles and errors.
struct Name {
	std::string group; // "group 0, rank 2 of 4"
	const char *op;    // "all_reduce"
	uint64_t number;   // counted in the group
	// The exception for a failure; `rc`: of Kolo's, which has just reported it on this thread.
	std::exception_ptr failure(int rc) const;
	std::exception_ptr failure(const std::string &why) const;
};

class Operation : public c10d::Work
{
      public:
	Operation(int rank, c10d::OpType type, const std::string &title, Name name, std::vector<at::Tensor> inputs,
		  std::vector<at::Tensor> outputs);
	// It is over: with an exception it has failed. Waiters wake up, and the future is completed.
	void complete(std::exception_ptr exception);
	const Name &name() const { return name_; }

	std::vector<at::Tensor> result() override { return outputs_; }
	c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
	uint64_t getSequencenumber() const override { return name_.number; }

      private:
	void settle();

	Name name_;
	std::vector<at::Tensor> inputs_, outputs_;       // kept until the end
	c10::intrusive_ptr<c10::ivalue::Future> future_; // null: nobody has asked for it
	bool settled_ = false;
};

// A message: its request is waited for by whoever comes first.
class Message : public Operation
{
      public:
	Message(int rank, c10d::OpType type, const std::string &title, Name name, const at::Tensor &tensor, size_t n);
	void start(kolo_request *request) { request_ = request; }
	// Blocks until it is over, or for so long at most. Returns whether it is. Does not raise.
	bool await(std::chrono::milliseconds most);
	// It has not been waited for, and never will be: the group has ended.
	void drop();

	bool wait(std::chrono::milliseconds timeout) override;
	bool isCompleted() override { return await(std::chrono::milliseconds(0)); }
	int sourceRank() const override { return got_.peer; }

      private:
	void take(); // the request is done

	enum { PENDING, WAITING, OVER } state_ = PENDING; // WAITING: a thread waits for the request
	std::mutex own_;
	std::condition_variable changed_;
	kolo_request *request_ = nullptr;
	kolo_received got_ = {};
	size_t n_; // elements that a receive wants
};

// Several that end together.
class Batch : public c10d::Work
{
      public:
	explicit Batch(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> parts);
	bool isCompleted() override;
	bool isSuccess() const override;
	bool wait(std::chrono::milliseconds timeout) override;
	std::vector<at::Tensor> result() override;
	c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

      private:
	std::vector<c10::intrusive_ptr<c10d::Work>> parts_;
};

} // namespace kolo
