// Messages between two ranks, and the barrier that is made of them.
#include "backend.hpp"

#include <algorithm>
#include <climits>

namespace kolo
{

using c10d::OpType;

int grouped(size_t n, const std::function<int(size_t k)> &call)
{
	int rc = 0;
	kolo_group_begin();
	for (size_t k = 0; k < n && rc == 0; k++)
		rc = call(k);
	const std::string why = rc < 0 ? kolo_last_error() : "";
	const int end = kolo_group_end();
	return rc < 0 ? kolo_error_set(rc, "%s", why.c_str()) : end;
}

Done Backend::pass(Tensors &tensors, int peer, int tag, OpType type, const char *op)
{
	const auto &tensor = single(tensors, op);
	if (!tensor.device().is_cpu())
		return passOnStream(tensor, peer, tag, type, op);
	const Elements e = elementsOf(tensor, op);
	kolo_request *request;
	std::unique_lock<std::mutex> lock(messages_lock_);
	TORCH_CHECK_WITH(DistBackendError, !messages_closing_, "kolo: group ", group_, ": ", op,
			 ": the process group was destroyed");
	mustBePeer(peer, op);
	auto message = c10::make_intrusive<Message>(rank_, type, name_ + ":" + op, nameOf(op, ++messages_number_),
						    tensor, e.n);
	const int rc = type == OpType::SEND ? kolo_isend(ends_.mailbox, e.data, e.n, e.type, peer, tag, &request)
					    : kolo_irecv(ends_.mailbox, e.data, e.n, e.type, peer, tag, &request);
	if (rc < 0)
		std::rethrow_exception(message->name().failure(rc));
	message->start(request);
	while (!messages_.empty() && messages_.front()->Work::isCompleted()) // without a look at its request
		messages_.pop_front();
	messages_.push_back(message);
	if (!mover_.joinable())
		mover_ = std::thread(&Backend::move, this);
	messages_changed_->notify_all();
	return note(message);
}

void Backend::mustBePeer(int peer, const char *op) const
{
	TORCH_CHECK_VALUE(peer == KOLO_ANY_RANK || (peer >= 0 && peer < size_ && peer != rank_), "kolo: ", op,
			  ": invalid rank: ", peer, ", want one of 0 to ", size_ - 1, " that is not this rank");
}

// ---- Of CUDA tensors ----------------------------------------------------------------------------------------------

int Backend::StreamMessage::pass(const Place &place) const
{
	const Elements &e = elements;
	return sends ? kolo_send(place.comm, e.data, e.n, e.type, peer, place.queue)
		     : kolo_recv(place.comm, e.data, e.n, e.type, peer, place.queue);
}

Done Backend::passOnStream(const at::Tensor &tensor, int peer, int tag, OpType type, const char *op)
{
	mustBePeer(peer, op);
	TORCH_CHECK_VALUE(peer != KOLO_ANY_RANK && tag == 0, "kolo: ", op,
			  ": messages of CUDA tensors have no tags and name their sender; want tensors on the CPU");
	const StreamMessage message = { tensor, elementsOf(tensor, op), peer, type == OpType::SEND };
	if (coalescing_) {
		together_.push_back(message);
		return nullptr;
	}
	return submit(type, op, { tensor }, { tensor }, timeout_, false,
		      [message](Place &place) { return message.pass(place); });
}

// Those of a batch are one step of the stream.
Done Backend::passTogether()
{
	Tensors tensors;
	const auto messages = std::move(together_);
	for (const auto &message : messages)
		tensors.push_back(message.tensor);
	return submit(OpType::COALESCED, "batch_isend_irecv", tensors, tensors, timeout_, false,
		      [messages](Place &place) {
			      return grouped(messages.size(), [&](size_t k) { return messages[k].pass(place); });
		      });
}

// ---- Moving those of the CPU --------------------------------------------------------------------------------------

// The thread that moves on messages that nobody has waited for within a moment.
void Backend::move()
{
	constexpr Milliseconds MOMENT(1), SLICE(50); // after a slice it looks whether the group ends
	std::unique_lock<std::mutex> lock(messages_lock_);
	while (!messages_closing_) {
		if (messages_.empty()) {
			messages_changed_->wait(lock);
			continue;
		}
		const auto message = messages_.front();
		messages_changed_->wait_for(lock, MOMENT, [this] { return messages_closing_; });
		if (messages_closing_)
			return;
		lock.unlock();
		const bool over = message->await(SLICE);
		lock.lock();
		if (over && !messages_.empty() && messages_.front() == message)
			messages_.pop_front();
	}
}

Done Backend::send(Tensors &tensors, int peer, int tag)
{
	return pass(tensors, peer, tag, OpType::SEND, "send");
}

Done Backend::recv(Tensors &tensors, int peer, int tag)
{
	return pass(tensors, peer, tag, OpType::RECV, "recv");
}

Done Backend::recvAnysource(Tensors &tensors, int tag)
{
	return pass(tensors, KOLO_ANY_RANK, tag, OpType::RECVANYSOURCE, "recvAnySource");
}

namespace
{

constexpr int CAME = INT_MAX, LEAVE = INT_MAX - 1; // tags

// Waits for a word of `peer` with this tag until a time. False: it has not come; kolo_last_error says why.
bool hear(kolo_mailbox *mailbox, int peer, int tag, std::chrono::steady_clock::time_point until)
{
	kolo_request *request;
	int done = 0;
	if (kolo_irecv(mailbox, nullptr, 0, KOLO_U8, peer, tag, &request) < 0)
		return false;
	while (kolo_request_test(request, &done) == 0 && !done) {
		if (std::chrono::steady_clock::now() >= until)
			kolo_request_cancel(request);
		std::this_thread::sleep_for(std::chrono::microseconds(100));
	}
	return kolo_request_wait(request, nullptr) == 0;
}

void say(kolo_mailbox *mailbox, int peer, int tag)
{
	kolo_send_tag(mailbox, nullptr, 0, KOLO_U8, peer, tag, nullptr);
}

} // namespace

// Rank 0 hears of each rank that has come, and then lets all go.
void Backend::monitoredBarrier(const c10d::BarrierOptions &opts, bool all)
{
	const auto timeout = opts.timeout == c10d::kUnsetTimeout ? timeout_.load() : opts.timeout;
	const auto until = std::chrono::steady_clock::now() + timeout;
	std::string late;
	if (rank_ != 0) {
		say(ends_.mailbox, 0, CAME);
		TORCH_CHECK(
			hear(ends_.mailbox, 0, LEAVE, until), "kolo: Rank ", rank_,
			" successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. "
			"Please check rank 0 logs for faulty rank. ",
			kolo_last_error());
		return;
	}
	for (int r = 1; r < size_ && (all || late.empty()); r++) {
		TORCH_CHECK(all || std::chrono::steady_clock::now() < until,
			    "kolo: Rank 0 timed out in monitoredBarrier after ", timeout.count(),
			    " ms, before it heard of rank ", r);
		if (!hear(ends_.mailbox, r, CAME, until))
			late += (late.empty() ? "" : ", ") + std::to_string(r);
	}
	TORCH_CHECK(late.empty(), "kolo: [Rank 0]: ", all ? "Ranks " : "Rank ", late,
		    " failed to pass monitoredBarrier in ", timeout.count(), " ms");
	for (int r = 1; r < size_; r++)
		say(ends_.mailbox, r, LEAVE);
}

} // namespace kolo
