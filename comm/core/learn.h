/* What is learnt from the operations themselves, by collective and class of size, because it differs from machine to
 * machine and can't be asked:
 *
 * With which stores results are written to dst. Ordinary ones read each line before they overwrite it and keep it in the
 * caches; streaming ones do neither, and are better for what is too large for the caches anyway. What the system
 * reads it writes as it likes. Each rank decides for itself.
 *
 * Whether plain memory of other ranks is better read directly than sent round the ring. One rank decides for all, whose
 * result comes last in the ring: it tells in its offer (direct.c).
 *
 * Whether large messages are better offered than sent through the slots of a lane. Each sender decides for itself. */
#ifndef COMM_CORE_LEARN_H
#define COMM_CORE_LEARN_H

#include "comm/core/run.h"

/* Bytes that go to dst from which on stores are chosen. */
enum { KO_LEARN_STORES = 1 << 20 };

/* What operations of one collective and class of sizes have cost when done in one of two ways. */
struct ko_sample {
	uint32_t count;
	float ns_per_byte[2]; /* 0: not known */
};

enum { KO_SAMPLES = 20 };

/* All that a communicator has learnt. */
struct ko_tuning {
	/* Round the ring, and in windows: with ordinary or with streaming stores */
	struct ko_sample writing[2][KO_NKINDS][KO_SAMPLES];
	/* Out of place, and in: round the ring, or in slots of a lane, or directly */
	struct ko_sample reading[KO_NKINDS][2][KO_SAMPLES];
};

/* The rank that decides whether to read. */
int ko_learn_decider(const struct ko_run *run);

/* That rank's decision: of an operation in place, or out of it. */
bool ko_learn_to_read(const struct ko_run *run, bool in_place);

/* The decision was that for `in_place`; the time that this operation takes counts for it. */
void ko_learn_reading(struct ko_run *run, bool in_place);

/* Chooses run->stores for an operation that is about to begin, by run->written and run->way. */
void ko_learn_stores(struct ko_run *run);

/* Chooses run->offers and run->stores for messages that are about to be sent and received, so many bytes in all: `large`
 * of those sent may be offered, and lie in plain memory. */
void ko_learn_messages(struct ko_run *run, size_t large, size_t sent, size_t received);

/* The operation has succeeded. */
void ko_learn(struct ko_run *run);

#endif
