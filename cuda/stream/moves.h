/* Round the ring: the moves of the host's rounds (comm/coll/rounds.c), recorded.
 *
 * A move waits until prev's slot is full and next's is empty. One kernel does its work. Then the
 * stream marks prev's slot empty and next's full. Each operation uses slots from number 0 on, and
 * ends when next has emptied the last of them. */
#ifndef CUDA_STREAM_MOVES_H
#define CUDA_STREAM_MOVES_H

#include "cuda/stream/tape.h"

struct ko_moves_ring {
	const struct ko_gpu_ring *ring;
	bool in_flags, out_flags; /* flags say what the slots of this edge are; false: events do */
	uint64_t in, out;         /* slots received, and slots sent, in this operation */
	uint64_t
		in_before; /* slots of the pair from prev that were emptied before this operation */
	uint64_t out_before; /* slots of the pair to next that were filled before this operation */
};

struct ko_moves_tape {
	struct ko_tape tape;
	struct ko_moves_ring rings[KO_GPU_RINGS];
	int nslots;
	size_t stride;         /* bytes from slot to slot */
	const char *src, *dst; /* the caller's vectors; places are counted from their beginning */
	enum ko_combine how_sums; /* how partial sums are added to each other */
};

/* Bytes of a slot for this operation; the same on all ranks. `n` is what the plan is made of, or
 * the largest of the counts. */
size_t ko_gpu_slot_len(const struct ko_gpu_comm *g, enum ko_coll coll, size_t n, size_t nranks,
		       size_t size);

/* Bytes of elements that fit a slot of so many bytes. */
size_t ko_gpu_slot_payload(size_t slot_len);

/* Records all rounds of the tape's plan, and a wait until next has taken all. The plan was made for
 * ko_gpu_slot_payload. g, stream, captured and run of the tape are set. The caller ends the tape.
 * Errors: those of ko_tape_flush. */
int ko_gpu_go_round(struct ko_moves_tape *m, size_t slot_len, const void *src, void *dst);

/* The same in the order "grid", through this rank's group and along its rail. */
int ko_gpu_go_along(struct ko_moves_tape *m, const void *src, void *dst);

/* Sends `len` bytes from src to next in a ring, and receives what prev sends into dst. With
 * `staged` over those of the two edges that are staged, else over those that are not. `len` fits a
 * slot. The caller ends the tape. Errors: those of ko_tape_flush. */
int ko_gpu_pass_on(struct ko_moves_tape *m, const struct ko_gpu_ring *ring, const void *src,
		   void *dst, size_t len, bool staged);

#endif
