/* Queues that are CUDA streams. */
#ifndef CUDA_API_STREAM_H
#define CUDA_API_STREAM_H

#include "cuda/gpu/gpu.h"

#include "comm/sys/queue.h"

#include <stdatomic.h>

struct ko_stream {
	struct kolo_queue queue; /* first */
	atomic_int holders;      /* the queue, and events that were recorded with it */
	const struct ko_driver *driver;
	struct ko_gpu *gpu;
	void *stream; /* the driver's; NULL: the default one */
	struct ko_gpu_uses *uses;
};

/* The stream of a queue. NULL: the queue is none, or not a stream. */
struct ko_stream *ko_stream_of(struct kolo_queue *queue);

/* Finds the communicator's GPU, which must be the queue's. If the communicator has not joined its
 * GPUs yet, this is a collective that does it. KOLO_EINVAL, and those of ko_gpu_connect. */
int ko_stream_join(struct ko_stream *s, struct kolo_comm *comm, struct ko_gpu_comm **out);

/* Reports what memory a pointer leads to, as the stream's GPU sees it. From any thread.
 * KOLO_ESYS. */
int ko_stream_ask(const struct ko_stream *s, const void *pointer, struct kolo_cuda_pointer *out);

#endif
