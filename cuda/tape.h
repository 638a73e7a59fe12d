/* What an operation puts on a stream: waits and writes of flags, waits for events, kernels. Nothing of it is looked at on the host,
 * and every number in it is a constant, so that a graph can hold it. */
#ifndef KO_TAPE_H
#define KO_TAPE_H

#include "gpu.h"

#include "../comm/run.h"

struct ko_tape {
	struct ko_run run;
	struct ko_gpu_comm *g;
	void *stream;
	bool captured; /* into a graph: waits are for flags always, and nothing waits for the stream */
	bool watched;  /* some wait is for flags: who watches is told what the stream is at */
	unsigned moves;
	struct ko_flag_op ops[KO_DRIVER_OPS]; /* nops of them are not on the stream yet */
	int nops;
};

/* Errors, of all that return them: as ko_gpu_error has them, and those of a wait. */

/* One more op, on a flag of some ko_gpu_flags, as the GPU sees them. On the stream with the next flush. */
void ko_tape_flag(struct ko_tape *t, enum ko_flag_kind kind, uint32_t value, char *flags, size_t offset);

/* Tells who watches what the stream is about to wait for: KO_STAGE_..., in the operation's move that is recorded now. */
void ko_tape_stage(struct ko_tape *t, uint32_t stage);

int ko_tape_flush(struct ko_tape *t);

/* The operation is recorded: the stream is at nothing any more. */
int ko_tape_end(struct ko_tape *t);

/* What is on the stream is the communicator's last operation; of its capture, should that be a number and not 0. Errors:
 * ko_gpu_error's. */
int ko_tape_mark_last(struct ko_gpu_comm *g, void *stream, uint64_t capture);

/* It is not recorded to its end: then the stream is at nothing any more when it has done what was, and `last` says when that
 * is, as far as the driver still does anything. Returns rc with its text. */
int ko_tape_give_up(struct ko_tape *t, uint64_t capture, int rc);

/* The stream waits for an event of `peer`'s, a thread of this process, which has recorded it when `count` is `least`: for that
 * the caller waits. */
int ko_tape_await(struct ko_tape *t, int peer, _Atomic uint64_t *count, uint64_t least, void *event);

/* Records an event that others wait for, and counts it. What was added before is on the stream. */
int ko_tape_mark(struct ko_tape *t, _Atomic uint64_t *count, void *event);

/* A kernel; n, type and s of the job are filled in. */
int ko_tape_compute(struct ko_tape *t, struct ko_gpu_job job, size_t n);

/* Before each move: keeps the recording no further ahead of the stream than a launch queue is long. */
int ko_tape_pace(struct ko_tape *t);

#endif
