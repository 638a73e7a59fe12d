// Who does an operation, and when.
#include "backend.hpp"

#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <set>
#include <unistd.h>

namespace kolo
{

int secondsOf(Milliseconds timeout)
{
	constexpr int64_t MOST = 1000000;
	const int64_t seconds = (timeout.count() + 999) / 1000;
	return seconds > MOST ? -1 : seconds < 1 ? 1 : static_cast<int>(seconds);
}

Name Backend::nameOf(const char *op, uint64_t number) const
{
	return { c10::str("group ", group_, ", rank ", rank_, " of ", size_), op, number };
}

void Backend::mustBeOpen(const char *op) const
{
	TORCH_CHECK_WITH(DistBackendError, !closing_, "kolo: group ", group_, ": ", op,
			 ": the process group was destroyed or aborted");
}

void Backend::limit(Milliseconds timeout)
{
	const int seconds = secondsOf(timeout);
	if (seconds != seconds_) {
		kolo_timeout_set(ends_.comm, seconds);
		seconds_ = seconds;
	}
}

// Does an operation; nobody else does one meanwhile.
void Backend::perform(const Pending &pending)
{
	limit(pending.timeout);
	std::exception_ptr exception;
	try {
		const int rc = pending.job(*host_);
		if (rc < 0)
			exception = pending.operation->name().failure(rc);
	} catch (...) { // no memory for a copy, or what torch itself raises
		exception = std::current_exception();
	}
	pending.operation->complete(exception);
}

Done Backend::submit(c10d::OpType type, const char *op, Tensors inputs, Tensors outputs, Milliseconds timeout,
		     bool waits, Job job)
{
	const at::Device device = deviceOf(inputs, outputs, op);
	if (timeout == c10d::kUnsetTimeout)
		timeout = timeout_;
	if (!device.is_cpu())
		return note(record(type, op, std::move(inputs), std::move(outputs), timeout, device, job));
	std::unique_lock<std::mutex> lock(lock_);
	mustBeOpen(op);
	Pending pending = { c10::make_intrusive<Operation>(rank_, type, name_ + ":" + op, nameOf(op, ++number_),
							   std::move(inputs), std::move(outputs)),
			    std::move(job), timeout };
	Done done = pending.operation;
	if (waits && !coalescing_ && pending_.empty() && !running_) {
		running_ = true;
		lock.unlock();
		perform(pending);
		lock.lock();
		running_ = false;
		if (!pending_.empty() || closing_) // else nobody waits for that
			changed_->notify_all();
		return done;
	}
	pending_.push_back(std::move(pending));
	if (!worker_.joinable())
		worker_ = std::thread(&Backend::work, this);
	changed_->notify_all();
	lock.unlock();
	return note(done);
}

// ---- On the stream ------------------------------------------------------------------------------------------------

// Calls it when nobody does an operation, and keeps others from it meanwhile.
void Backend::inTurn(const char *op, const std::function<void()> &call)
{
	std::unique_lock<std::mutex> lock(lock_);
	changed_->wait(lock, [this] { return closing_ || (!running_ && pending_.empty()); });
	mustBeOpen(op);
	running_ = true;
	lock.unlock();
	std::exception_ptr exception;
	try {
		call();
	} catch (...) {
		exception = std::current_exception();
	}
	lock.lock();
	running_ = false;
	changed_->notify_all();
	if (exception)
		std::rethrow_exception(exception);
}

bool Backend::hasJoined()
{
	std::lock_guard<std::mutex> lock(lock_);
	return streams_ != nullptr;
}

uint64_t Backend::next()
{
	std::lock_guard<std::mutex> lock(lock_);
	return ++number_;
}

// In turn. Another thread may ask meanwhile whether it has joined.
void Backend::join(const at::Device &device, const char *op)
{
	if (!streams_) {
		auto streams = std::make_unique<Streams>(ends_.comm, device,
							 nameOf("joining the GPUs", getSequenceNumberForGroup()));
		std::lock_guard<std::mutex> lock(lock_);
		streams_ = std::move(streams);
	}
	TORCH_CHECK_VALUE(streams_->device() == device, "kolo: ", op,
			  ": a group has one GPU for each rank: this one has ", streams_->device(),
			  ", and the tensor is on ", device);
}

Done Backend::record(c10d::OpType type, const char *op, Tensors inputs, Tensors outputs, Milliseconds timeout,
		     const at::Device &device, const Job &job)
{
	c10::intrusive_ptr<StreamOperation> done;
	inTurn(op, [&] {
		Tensors all = inputs;
		all.insert(all.end(), outputs.begin(), outputs.end());
		limit(timeout);
		join(device, op);
		done = c10::make_intrusive<StreamOperation>(rank_, type, name_ + ":" + op, nameOf(op, next()),
							    std::move(inputs), std::move(outputs), streams_->stream(),
							    streams_->health());
		const int rc = streams_->record(all, job);
		if (rc < 0)
			std::rethrow_exception(done->name().failure(rc));
		done->end();
	});
	return done;
}

void Backend::eagerConnectSingleDevice(at::Device device)
{
	inTurn("connect", [&] {
		limit(timeout_);
		join(device, "connect");
	});
}

// ---- The group's thread -------------------------------------------------------------------------------------------

// What it holds of an operation may need Python to be freed, so that is done before it is idle.
void Backend::work()
{
	std::unique_lock<std::mutex> lock(lock_);
	for (;;) {
		changed_->wait(lock, [this] { return !running_ && (closing_ || resting_ || !pending_.empty()); });
		if (pending_.empty())
			return;
		{
			const Pending pending = std::move(pending_.front());
			pending_.pop_front();
			running_ = true;
			lock.unlock();
			perform(pending);
		}
		lock.lock();
		running_ = false;
		changed_->notify_all();
	}
}

uint64_t Backend::getSequenceNumberForGroup()
{
	std::lock_guard<std::mutex> lock(lock_);
	return number_;
}

// ---- Coalescing ---------------------------------------------------------------------------------------------------

// What is called until the end is one work. Nothing of it waits for its callers, so that no rank waits in the middle.
void Backend::startCoalescing()
{
	coalescing_ = true;
	batch_.clear();
	together_.clear();
}

Done Backend::endCoalescing()
{
	coalescing_ = false;
	if (!together_.empty())
		batch_.push_back(passTogether());
	return c10::make_intrusive<Batch>(rank_, std::move(batch_));
}

Done Backend::note(Done work)
{
	if (coalescing_)
		batch_.push_back(work);
	return work;
}

// ---- The end ------------------------------------------------------------------------------------------------------

namespace
{

// All backends of this process.
std::mutex all_lock;
std::set<Backend *> all;

} // namespace

void Backend::enlist()
{
	std::lock_guard<std::mutex> lock(all_lock);
	all.insert(this);
}

void Backend::restAll()
{
	std::lock_guard<std::mutex> lock(all_lock);
	for (Backend *backend : all)
		if (backend->pid_ == getpid())
			backend->rest();
}

// Ends the threads before Python ends.
void Backend::rest()
{
	std::unique_lock<std::mutex> lock(lock_);
	calm(lock);
	resting_ = true;
	endThreads(lock);
	resting_ = false;
}

// Waits until nothing is under way. What does not end by itself within a moment is aborted.
void Backend::calm(std::unique_lock<std::mutex> &lock)
{
	constexpr Milliseconds MOMENT(1000), PAUSE(1);
	const auto until = std::chrono::steady_clock::now() + MOMENT;
	bool calm = changed_->wait_until(lock, until, [this] { return !running_ && pending_.empty(); });
	while (calm && streams_ && !streams_->isIdle()) {
		calm = std::chrono::steady_clock::now() < until;
		std::this_thread::sleep_for(PAUSE);
	}
	if (!calm)
		abort();
}

// Ends the threads, which have been told to end, or to rest.
void Backend::endThreads(std::unique_lock<std::mutex> &lock)
{
	{
		std::lock_guard<std::mutex> messages_lock(messages_lock_);
		messages_closing_ = true;
	}
	changed_->notify_all();
	messages_changed_->notify_all();
	lock.unlock();
	if (worker_.joinable())
		worker_.join();
	if (mover_.joinable())
		mover_.join();
	lock.lock();
}

// Ends the group, once. `waits`: after what is under way, however long that takes. In a child of fork nothing happens.
void Backend::close(bool waits)
{
	if (pid_ != getpid())
		return;
	// A thread that ends may need Python to free a tensor.
	std::optional<pybind11::gil_scoped_release> released;
	if (Py_IsInitialized() && PyGILState_Check())
		released.emplace();
	std::unique_lock<std::mutex> lock(lock_);
	if (waits)
		changed_->wait(lock, [this] { return !running_ && pending_.empty(); });
	if (waits && streams_)
		streams_->finish();
	if (!waits)
		calm(lock);
	closing_ = true;
	endThreads(lock);
	changed_->wait(lock, [this] { return !running_; });
	lock.unlock(); // what waits for a message may call this group again
	for (const auto &message : messages_)
		message->drop();
	messages_.clear();
	streams_.reset();
	kolo_mailbox_destroy(ends_.mailbox);
	kolo_comm_destroy(ends_.comm);
	ends_ = {};
}

Backend::~Backend()
{
	{
		std::lock_guard<std::mutex> lock(all_lock);
		all.erase(this);
	}
	close(false);
	if (pid_ == getpid())
		return;
	// The parent's threads are not here. What they wait for must stay: its end would wait for them.
	if (worker_.joinable())
		worker_.detach();
	if (mover_.joinable())
		mover_.detach();
	changed_.release();
	messages_changed_.release();
}

void Backend::abort()
{
	if (ends_.comm && pid_ == getpid())
		kolo_comm_abort(ends_.comm);
}

void Backend::shutdown()
{
	close(true);
}

#ifdef KOLO_TORCH_OPTIONS
c10d::ErrorType Backend::getError()
{
	const int status = ends_.comm ? kolo_comm_status(ends_.comm) : 0;
	switch (status) {
	case KOLO_OK: return c10d::ErrorType::SUCCESS;
	case KOLO_ETIMEDOUT: return c10d::ErrorType::TIMEOUT;
	case KOLO_EPEER: return c10d::ErrorType::REMOTE_ERROR;
	default: return c10d::ErrorType::COMM_ERROR;
	}
}
#endif

} // namespace kolo
