/* Round the ring: the moves of the host's rounds (comm/rounds.c), recorded. A move waits for prev's slot to be full and for next's
 * to be empty, does its work in one kernel, and says of both slots what they are now. Slots are used from number 0 on in each
 * operation, which ends when next has taken the last of them. */
#ifndef KO_GPU_MOVES_H
#define KO_GPU_MOVES_H

#include "tape.h"

struct ko_moves_tape {
	struct ko_tape tape;
	bool in_flags, out_flags; /* flags say what the slots are, else events */
	int nslots;
	size_t stride;         /* bytes from slot to slot */
	const char *src, *dst; /* the caller's, which places are counted from */
	uint64_t in, out;      /* slots that came, and went, in this operation */
	uint64_t in_before;    /* slots of the pair from prev that were emptied before it, */
	uint64_t out_before;   /* and of the one to next that were filled */
};

/* Bytes of a slot, of which elements may take ko_gpu_slot_payload: the same on all ranks. `n` as the plan is made of, or the largest
 * of its counts. */
size_t ko_gpu_slot_len(const struct ko_gpu_comm *g, enum ko_coll coll, size_t n, size_t nranks, size_t size);
size_t ko_gpu_slot_payload(size_t slot_len);

/* All rounds of the tape's plan, which was made for that room, until next has taken all. g, stream, captured and run of the tape
 * are there; what it is at the caller ends. Errors: ko_tape_flush's. */
int ko_gpu_go_round(struct ko_moves_tape *m, size_t slot_len, const void *src, void *dst);

/* Sends `len` bytes from src to next, and what comes from prev to dst, over those of these edges that are staged, or over those
 * that are not; no more than fits a slot.
 * Errors: the same. */
int ko_gpu_pass_on(struct ko_moves_tape *m, const void *src, void *dst, size_t len, bool staged);

#endif
