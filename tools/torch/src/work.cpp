#include "work.hpp"

#include <c10/util/Exception.h>

#include <climits>

namespace kolo
{

namespace
{

using Future = c10::ivalue::Future;

c10::intrusive_ptr<Future> makeFuture()
{
	return c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
}

} // namespace

std::exception_ptr Name::failure(int rc) const
{
	return failure(c10::str(rc == KOLO_ETIMEDOUT ? "the timeout is over: " : "", kolo_last_error()));
}

std::exception_ptr Name::failure(const std::string &why) const
{
	try {
		C10_THROW_ERROR(DistBackendError, c10::str("kolo: ", group, ": ", op, " number ", number, ": ", why));
	} catch (...) {
		return std::current_exception();
	}
}

// ---- Operations ---------------------------------------------------------------------------------------------------

Operation::Operation(int rank, c10d::OpType type, const std::string &title, Name name, std::vector<at::Tensor> inputs,
		     std::vector<at::Tensor> outputs)
    : Work(rank, type, title.c_str(), inputs), name_(std::move(name)), inputs_(std::move(inputs)),
      outputs_(std::move(outputs))
{
}

void Operation::complete(std::exception_ptr exception)
{
	inputs_.clear();
	finish(std::move(exception));
	settle();
}

// Completes the future, once, if there is one and the operation is over.
void Operation::settle()
{
	std::unique_lock<std::mutex> lock(mutex_);
	if (!completed_ || !future_ || settled_)
		return;
	settled_ = true;
	lock.unlock();
	if (exception_)
		future_->setError(exception_);
	else
		future_->markCompleted(c10::IValue(outputs_));
}

c10::intrusive_ptr<Future> Operation::getFuture()
{
	{
		std::lock_guard<std::mutex> lock(mutex_);
		if (!future_)
			future_ = makeFuture();
	}
	settle();
	return future_;
}

// ---- Messages -----------------------------------------------------------------------------------------------------

Message::Message(int rank, c10d::OpType type, const std::string &title, Name name, const at::Tensor &tensor, size_t n)
    : Operation(rank, type, title, std::move(name), { tensor }, { tensor }), n_(n)
{
}

void Message::take()
{
	const int rc = kolo_request_wait(request_, &got_);
	std::exception_ptr exception;
	if (rc < 0)
		exception = name().failure(rc);
	else if (got_.n != n_)
		exception = name().failure(
			c10::str("rank ", got_.peer, " sent ", got_.n, " elements, and this rank waits for ", n_));
	complete(exception);
}

bool Message::await(std::chrono::milliseconds most)
{
	const auto until = std::chrono::steady_clock::now() + most;
	std::unique_lock<std::mutex> lock(own_);
	changed_.wait_until(lock, until, [this] { return state_ != WAITING; });
	if (state_ != PENDING)
		return state_ == OVER;
	state_ = WAITING;
	lock.unlock();
	int done = 0;
	kolo_request_poll(request_, static_cast<int>(std::min<int64_t>(most.count(), INT_MAX)), &done);
	if (done)
		take();
	lock.lock();
	state_ = done ? OVER : PENDING;
	changed_.notify_all();
	return done;
}

void Message::drop()
{
	std::unique_lock<std::mutex> lock(own_);
	changed_.wait(lock, [this] { return state_ != WAITING; });
	if (state_ == OVER)
		return;
	state_ = OVER;
	lock.unlock();
	complete(name().failure("the process group was destroyed before it was over"));
}

bool Message::wait(std::chrono::milliseconds timeout)
{
	// Without a timeout of its own it ends by the group's, which the library watches.
	constexpr std::chrono::hours LONG(24 * 365);
	TORCH_CHECK_WITH(DistBackendError, await(timeout.count() > 0 ? timeout : std::chrono::milliseconds(LONG)),
			 "kolo: ", name().group, ": ", name().op, " number ", name().number,
			 ": the timeout is over after ", timeout.count(), " ms");
	std::unique_lock<std::mutex> lock(mutex_);
	if (exception_)
		std::rethrow_exception(exception_);
	return true;
}

// ---- Batches ------------------------------------------------------------------------------------------------------

Batch::Batch(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> parts)
    : Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts))
{
}

bool Batch::isCompleted()
{
	bool all = true;
	for (const auto &part : parts_)
		all = part->isCompleted() && all;
	return all;
}

bool Batch::isSuccess() const
{
	for (const auto &part : parts_)
		if (!part->isSuccess())
			return false;
	return true;
}

bool Batch::wait(std::chrono::milliseconds timeout)
{
	for (const auto &part : parts_)
		part->wait(timeout);
	return true;
}

std::vector<at::Tensor> Batch::result()
{
	std::vector<at::Tensor> all;
	for (const auto &part : parts_)
		for (const auto &tensor : part->result())
			all.push_back(tensor);
	return all;
}

c10::intrusive_ptr<Future> Batch::getFuture()
{
	c10::List<c10::intrusive_ptr<Future>> all(
		c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
	for (const auto &part : parts_)
		all.push_back(part->getFuture());
	auto self = c10::intrusive_ptr<Batch>::unsafe_reclaim_from_nonowning(this);
	return c10::collectAll(all)->then([self](Future &) { return c10::IValue(self->result()); },
					  c10::ListType::create(c10::TensorType::get()));
}

} // namespace kolo
