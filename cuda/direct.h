/* Operations on registered memory: each rank reads and writes all others' where it is, in one kernel, with no slots between. All
 * wait for all before it, and behind it. */
#ifndef KO_GPU_DIRECT_H
#define KO_GPU_DIRECT_H

#include "tape.h"

#include "../comm/call.h"

/* Where the call's buffers are that others work on; in no window, where it goes round the ring. The same on all ranks, or they
 * disagree. */
struct ko_gpu_places ko_gpu_direct_places(const struct ko_tape *t, const struct ko_call *call);

static inline bool ko_gpu_is_direct(const struct ko_gpu_places *places)
{
	return places->src.window || places->dst.window;
}

/* The stream says to all others that it has come, or with `done` that it has done its part, and waits until all have. One after the
 * other in turn, `done` last. Errors: ko_tape_flush's. */
int ko_gpu_meet(struct ko_tape *t, bool done);

/* All of it; what the stream is at the caller ends. Errors: ko_tape_flush's. */
int ko_gpu_direct(struct ko_tape *t, const struct ko_call *call, const struct ko_gpu_places *places);

/* Elements that this rank writes to others' memory, and reads there. */
struct ko_model ko_gpu_direct_model(const struct ko_tape *t);

#endif
