/* Tuning: what a communicator learns from the times of its own operations, because it differs from
 * machine to machine. Operations are sorted by collective and by class of size. Of each class there
 * are two ways. ko_learn notes the time of each, and the faster one is used. Now and then the other
 * one is tried again.
 *
 * Stores: are results written to dst with ordinary or with streaming stores? Ordinary ones read
 * each line before they overwrite it and keep it in the caches. Streaming ones do neither, and are
 * better for what is too large for the caches. Each rank decides for itself. Bytes that the kernel
 * copies (CMA) are not concerned.
 *
 * Reading: is plain memory of other ranks read directly (CMA), or sent? One rank, the
 * decider, decides for all and says so in its cell (comm/coll/direct.c).
 *
 * Messages: does a large message go by rendezvous or through the slots of a lane? Each sender
 * decides for itself. */
#ifndef COMM_CORE_LEARN_H
#define COMM_CORE_LEARN_H

#include "comm/core/run.h"

/* Stores are chosen if at least this many bytes go to dst. */
enum { KO_LEARN_STORES = 1 << 20 };

/* What operations of one collective and class of size have cost in each of two ways. */
struct ko_sample {
	uint32_t count;       /* operations so far, in either way */
	float ns_per_byte[2]; /* 0: not known */
};

/* Returns the way of the next operation, 0 or 1. `turn` operations in a row go the same way. First
 * each way has a turn; then the faster one, and now and then a turn of the other. */
int ko_sample_choose(const struct ko_sample *t, unsigned turn);

/* An operation took so long. A better time than was known counts at once. A worse one may be
 * chance: what is known moves a little, and no further for a time that is far off. */
void ko_sample_note(struct ko_sample *t, int way, float ns_per_byte);

enum { KO_SAMPLES = 20 };

/* All that a communicator has learnt. */
struct ko_tuning {
	/* By collective, class, slots of ring or grid (0) or windows (1). Ways: ordinary or
	 * streaming stores */
	struct ko_sample writing[KO_NKINDS][KO_SAMPLES][2];
	/* By collective, class, out of place (0) or in place (1). Ways: ring or slots, or CMA */
	struct ko_sample reading[KO_NKINDS][KO_SAMPLES][2];
};

/* Finds the run's samples, by collective and size (run->writings, run->readings), and its decider:
 * the rank whose result comes last in the ring. That is the rank before the root of a broadcast,
 * the root of a reduce, and rank 0 for all others. */
void ko_learn_find(struct ko_run *run);

/* The decider's decision for an operation in place or out of place: is memory read directly? */
bool ko_learn_to_read(const struct ko_run *run, bool in_place);

/* Chooses run->stores for an operation that is about to begin, by run->written and run->way.
 * ko_learn_find comes before it. */
void ko_learn_stores(struct ko_run *run);

/* Chooses run->offers (rendezvous for plain memory) and run->stores for messages that are about to
 * be sent and received. `sent` and `received`: bytes of all of them. `large`: bytes of those sent
 * that lie in plain memory and are large enough for rendezvous. */
void ko_learn_messages(struct ko_run *run, size_t large, size_t sent, size_t received);

/* The operation has succeeded: notes its time, where run->writing and run->reading say. */
void ko_learn(struct ko_run *run);

#endif
