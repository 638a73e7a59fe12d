/* Collectives of blocks that each go from one rank to another: all_to_all, gather and scatter. Each rank puts what is for others into
 * memory of Kolo's own that all have mapped, and takes from theirs what is for it; all wait for all in between. */
#ifndef KO_GPU_ALLTOALL_H
#define KO_GPU_ALLTOALL_H

#include "tape.h"

#include "../comm/call.h"

/* Before a call: makes that memory, if there is none yet. A collective then, which a stream that is captured can't be used with.
 * KOLO_ENOTSUP where ranks don't reach each other's memory; KOLO_EINVAL, and those of kolo_cuda_register. */
int ko_gpu_alltoall_open(struct ko_gpu_comm *g, void *stream, const struct ko_call *call);

/* The GPU is entered. */
void ko_gpu_alltoall_close(struct ko_gpu_comm *g);

/* All of it; what the stream is at the caller ends. Errors: ko_tape_flush's. */
int ko_gpu_alltoall(struct ko_tape *t, const struct ko_call *call);

/* Elements that others get of this rank, and it of them. */
struct ko_model ko_gpu_alltoall_model(const struct ko_tape *t);

#endif
