/* all_to_all, gather and scatter: collectives of blocks that each go from one rank to another.
 *
 * Kolo has memory of its own that all ranks have mapped. Each rank puts the blocks for others into
 * its own part, and takes its blocks from theirs. All ranks wait for each other in between. */
#ifndef CUDA_STREAM_ALLTOALL_H
#define CUDA_STREAM_ALLTOALL_H

#include "cuda/stream/tape.h"

#include "comm/core/call.h"

/* Before each call: makes that memory if there is none yet. That is a collective, and impossible
 * while the stream is captured (KOLO_EINVAL). KOLO_ENOTSUP if ranks don't reach each other's
 * memory. Other errors: those of kolo_cuda_register. */
int ko_gpu_alltoall_open(struct ko_gpu_comm *g, void *stream, const struct ko_call *call);

/* Frees that memory. The GPU is entered. */
void ko_gpu_alltoall_close(struct ko_gpu_comm *g);

/* Records the whole operation. The caller ends the tape. Errors: those of ko_tape_flush. */
int ko_gpu_alltoall(struct ko_tape *t, const struct ko_call *call);

/* Elements that other ranks get from this one, and that it gets from them. */
struct ko_model ko_gpu_alltoall_model(const struct ko_tape *t);

#endif
