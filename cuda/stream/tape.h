/* What an operation puts on a stream: waits for flags and writes of flags, waits for events,
 * kernels. The host looks at none of it later, and every number in it is a constant. So a graph can
 * hold it. */
#ifndef CUDA_STREAM_TAPE_H
#define CUDA_STREAM_TAPE_H

#include "cuda/gpu/gpu.h"

#include "comm/core/run.h"

struct ko_tape {
	struct ko_run run;
	struct ko_gpu_comm *g;
	void *stream;
	int number; /* of the stream: 0 is the caller's, the others are Kolo's own (KO_GPU_STREAMS)
		     */
	bool captured; /* into a graph: all waits are for flags, and recording does not wait for the
			  stream */
	bool watched;  /* some wait is for a flag, so the stream also writes its stage */
	unsigned moves;
	struct ko_flag_op ops[KO_DRIVER_OPS]; /* nops operations that are not on the stream yet */
	int nops;
};

/* The functions that return int return ko_gpu_error's codes, and those of a wait on the host. */

/* Adds an operation on the flag at `offset` in `flags`, an address that the GPU sees. The next
 * flush puts it on the stream. */
void ko_tape_flag(struct ko_tape *t, enum ko_flag_kind kind, uint32_t value, char *flags,
		  size_t offset);

/* Adds the stage KO_STAGE_... of the move that is recorded now, for the watching thread. */
void ko_tape_stage(struct ko_tape *t, uint32_t stage);

/* Puts what was added on the stream. */
int ko_tape_flush(struct ko_tape *t);

/* Ends an operation: adds stage 0, and flushes. */
int ko_tape_end(struct ko_tape *t);

/* Marks what is on the stream as the communicator's last operation, or as the last one of this
 * capture. `capture` 0: it is not captured. */
int ko_tape_mark_last(struct ko_gpu_comm *g, void *stream, uint64_t capture);

/* Lets one stream wait for what is on another one now. Uses the event of the communicator's last
 * operation: this one has begun after that. */
int ko_tape_let_wait(struct ko_tape *t, void *waits, void *comes);

/* Ends an operation that could not be recorded completely. After what is on the stream its stage is
 * 0, and that is the last operation, if the driver still works. Returns rc, with its text. */
int ko_tape_give_up(struct ko_tape *t, uint64_t capture, int rc);

/* Lets the stream wait for an event of `peer`, a thread of this process. Blocks until `count` is
 * `least`: then the peer has recorded it. */
int ko_tape_await(struct ko_tape *t, int peer, _Atomic uint64_t *count, uint64_t least,
		  void *event);

/* Records an event that others wait for, and counts it. What was added before must be flushed. */
int ko_tape_mark(struct ko_tape *t, _Atomic uint64_t *count, void *event);

/* Records a kernel over n elements. Fills in n, type and s of the job. */
int ko_tape_compute(struct ko_tape *t, struct ko_gpu_job job, size_t n);

/* Records a copy of n elements, which nothing is done by after the communicator has failed: one of
 * the two places may be another rank's memory, which that may have taken back. */
int ko_tape_copy(struct ko_tape *t, enum kolo_type type, void *to, const void *from, size_t n);

/* Comes before each move. Blocks while recording is too far ahead of the stream (KO_GPU_PACE). */
int ko_tape_pace(struct ko_tape *t);

/* The same without blocking. KO_EAGAIN: it is too far ahead; what was added is on the stream. Then
 * ko_tape_nap waits a moment; it returns the cause if the communicator has failed. */
int ko_tape_try_pace(struct ko_tape *t);
int ko_tape_nap(const struct ko_tape *t);

#endif
