/* Recording an operation. A collective makes the same rounds as on the host, of moves that put
 * waits, kernels and writes on a stream. */
#ifndef CUDA_STREAM_RECORD_H
#define CUDA_STREAM_RECORD_H

#include "cuda/gpu/gpu.h"

#include "comm/core/call.h"

/* Puts a collective on the stream, which is on g's GPU. Returns when all of it is there. Blocks
 * while a neighbour that is a thread of this process has not come to the operation. Blocks also
 * while more than KO_GPU_PACE moves are ahead of the stream. Errors: those of a collective. */
int ko_gpu_record(struct ko_gpu_comm *g, void *stream, const struct ko_call *call,
		  const struct ko_reducer *red);

/* Sends and recvs that are recorded together, at least one, and their streams, each one once. */
struct ko_gpu_calls {
	const struct ko_call *const *all;
	size_t n;
	void **streams;
	size_t nstreams;
};

/* Puts sends and recvs on their streams, which are on g's GPU. Returns when all are there. Blocks
 * while the other end of one is a thread of this process that has not come to it, or as above.
 * Errors: those of kolo_send and kolo_recv; KOLO_EINVAL if the streams are in different
 * captures. */
int ko_gpu_record_messages(struct ko_gpu_comm *g, const struct ko_gpu_calls *calls);

#endif
