/* Queues: threads that do work in the order in which it was put in, and the marks (events) that are set between two
 * pieces of it. What the work is they don't know. Or streams: places outside of this library, on which an operation is
 * recorded in its call, and done later by something else. */
#ifndef COMM_SYS_QUEUE_H
#define COMM_SYS_QUEUE_H

#include "comm/base/error.h"

#include <stdbool.h>

struct ko_call;
struct ko_reducer;

/* What a stream does; the first member of what it is made of is the queue. */
struct ko_stream_ops {
	/* Records a collective whose turn has come and whose arguments are right. `red` as for ko_collective. */
	int (*record)(struct kolo_queue *q, const struct ko_call *call, const struct ko_reducer *red);
	int (*wait)(struct kolo_queue *q);     /* kolo_queue_wait */
	void (*destroy)(struct kolo_queue *q); /* kolo_queue_destroy; what was recorded need not be done */
};

struct kolo_queue {
	const struct ko_stream_ops *stream; /* NULL: a thread of its own (queue.c) */
};

/* Are operations with this queue, which may be NULL, done in their call, as far as they are? */
static inline bool ko_queue_is_now(const struct kolo_queue *q)
{
	return !q || q->stream;
}

/* A piece of work gets a copy of the argument that was put in. What it returns is 0 or a failure of the queue's, with
 * the thread's error text. */
typedef int ko_work_fn(void *arg);

enum { KO_WORK_ARG = 16 }; /* bytes of an argument, at most */

/* Puts run(copy of arg) in at the end; never blocks for the work itself. KOLO_ENOMEM; KOLO_ENOTSUP: a stream. */
int ko_queue_put(struct kolo_queue *q, ko_work_fn *run, const void *arg, size_t len);

#endif
