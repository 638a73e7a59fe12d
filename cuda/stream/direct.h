/* Operations on registered memory. Each rank reads and writes the memory of all others where it is,
 * in one kernel, without slots. All ranks wait for each other before the kernel, and after it. */
#ifndef CUDA_STREAM_DIRECT_H
#define CUDA_STREAM_DIRECT_H

#include "cuda/stream/tape.h"

#include "comm/core/call.h"

/* The places of the buffers that other ranks work on. They are in no window if the operation goes
 * round the ring. If ranks differ in that, ko_gpu_places_compare reports it. */
struct ko_gpu_places ko_gpu_direct_places(const struct ko_tape *t, const struct ko_call *call);

static inline bool ko_gpu_is_direct(const struct ko_gpu_places *places)
{
	return places->src.window || places->dst.window;
}

/* Records the whole operation. The caller ends the tape. Errors: those of ko_tape_flush. */
int ko_gpu_direct(struct ko_tape *t, const struct ko_call *call,
		  const struct ko_gpu_places *places);

/* Elements that this rank writes to other ranks' memory, and reads there. */
struct ko_model ko_gpu_direct_model(const struct ko_tape *t);

#endif
