/* A queue that is a stream. */
#ifndef KO_STREAM_H
#define KO_STREAM_H

#include "gpu.h"

#include "../comm/queue.h"

struct ko_stream {
	struct kolo_queue queue; /* first */
	const struct ko_driver *driver;
	struct ko_gpu *gpu;
	void *stream; /* the driver's; NULL: the default one */
	struct ko_gpu_uses *uses;
};

/* The queue as a stream; NULL: it is none. */
struct ko_stream *ko_stream_of(struct kolo_queue *queue);

/* The communicator's GPU, which is the queue's, joined to the others' if it was not: a collective then. */
int ko_stream_join(struct ko_stream *s, struct kolo_comm *comm, struct ko_gpu_comm **out);

/* What memory a pointer leads to, as the stream's GPU sees it. From any thread. KOLO_ESYS. */
int ko_stream_ask(const struct ko_stream *s, const void *pointer, struct kolo_cuda_pointer *out);

#endif
