// Where an operation is done: by the thread that calls Kolo, or on a stream of a GPU.
#pragma once

#include <kolo/kolo.h>

#include <cstring>
#include <memory>

namespace kolo
{

class Place
{
      public:
	Place(kolo_comm *on, kolo_queue *by) : comm(on), queue(by) {}
	virtual ~Place() = default;
	Place(const Place &) = delete;
	Place &operator=(const Place &) = delete;
	// Memory for the time of an operation. What an earlier call gave is lost.
	virtual void *room(size_t bytes) = 0;
	virtual void copy(void *to, const void *from, size_t bytes) = 0;

	kolo_comm *const comm;
	kolo_queue *const queue; // null: what calls of kolo.h do is done when they return
};

// The calling thread, and memory of the host. It lasts as long as the group, and so does its largest room.
class HostPlace : public Place
{
      public:
	explicit HostPlace(kolo_comm *on) : Place(on, nullptr) {}
	void *room(size_t bytes) override
	{
		if (bytes > size_) {
			memory_.reset(new char[bytes]);
			size_ = bytes;
		}
		return memory_.get();
	}
	void copy(void *to, const void *from, size_t bytes) override { memcpy(to, from, bytes); }

      private:
	std::unique_ptr<char[]> memory_;
	size_t size_ = 0;
};

} // namespace kolo
