/* Queues. There are two kinds:
 *
 *   a queue of its own   a thread that does work in the order in which it was put in (queue.c)
 *   a stream             of another library: a call records an operation there, to be done later
 *
 * A queue does not know what its work is. Events are marks between two pieces of work. */
#ifndef COMM_SYS_QUEUE_H
#define COMM_SYS_QUEUE_H

#include "comm/base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct ko_call;
struct ko_reducer;

/* A place on a stream that was recorded. The stream's own struct begins with this one. All may be
 * called on any thread, also after the queue is gone. */
struct ko_stream_mark {
	/* 0: the stream has come to it. KO_EAGAIN: it has not. Errors: those of the driver. */
	int (*poll)(struct ko_stream_mark *mark);
	/* Blocks until the stream has come to it. */
	int (*finish)(struct ko_stream_mark *mark);
	void (*free)(struct ko_stream_mark *mark);
};

/* The functions of a stream. The stream's own struct begins with a struct kolo_queue. */
struct ko_stream_ops {
	/* Records a collective, or one send or recv. Its turn has come and its arguments are
	 * checked. `red` is what ko_collective takes */
	int (*record)(struct kolo_queue *q, const struct ko_call *call,
		      const struct ko_reducer *red);
	/* Records sends and recvs of one communicator together, at least one. Their queues are
	 * streams of these functions, maybe different ones. Their turn has come and their arguments
	 * are checked */
	int (*messages)(const struct ko_call *const *calls, size_t count);
	/* Records the place where the stream is now, for kolo_event_record */
	int (*mark)(struct kolo_queue *q, struct ko_stream_mark **out);
	/* Lets the stream wait for such a place, on whatever stream that is */
	int (*await)(struct kolo_queue *q, struct ko_stream_mark *mark);
	/* Are both the same stream? */
	bool (*same)(const struct kolo_queue *a, const struct kolo_queue *b);
	int (*wait)(struct kolo_queue *q); /* kolo_queue_wait */
	/* kolo_queue_destroy; recorded work need not be done yet */
	void (*destroy)(struct kolo_queue *q);
};

struct kolo_queue {
	const struct ko_stream_ops *stream; /* NULL: a queue with a thread of its own */
};

/* Does an operation with this queue run, or get recorded, during its call? The queue may be
 * NULL. */
static inline bool ko_queue_is_now(const struct kolo_queue *q)
{
	return !q || q->stream;
}

/* Are both the same stream, or the same queue? */
static inline bool ko_queue_same(const struct kolo_queue *a, const struct kolo_queue *b)
{
	return a == b || (a->stream && a->stream == b->stream && a->stream->same(a, b));
}

/* A piece of work. It gets a copy of the argument that was put in. Returns 0, or the code of a
 * failure, which becomes the queue's; the thread's error text says why. */
typedef int ko_work_fn(void *arg);

enum { KO_WORK_ARG = 16 }; /* most bytes of an argument */

/* Appends run(copy of arg) to the queue. Never waits for the work itself. Errors: KOLO_ENOMEM;
 * KOLO_ENOTSUP: the queue is a stream. */
int ko_queue_put(struct kolo_queue *q, ko_work_fn *run, const void *arg, size_t len);

#endif
