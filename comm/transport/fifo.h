/* The slots of a link in memory that both ends can read and write: how shared memory carries bytes.
 *
 * Each slot has a word, full or empty. The sender waits for empty, fills the slot, and writes full.
 * The receiver waits for full, uses the slot, and writes empty. Each end walks the slots in order,
 * and keeps to itself which slot is its next. */
#ifndef COMM_TRANSPORT_FIFO_H
#define COMM_TRANSPORT_FIFO_H

#include "comm/transport/link.h"

#include <stdatomic.h>

/* How far the ends are when the receiver gets the slots' memory anew (ko_fifo_settle). In this
 * order: SETTLED, the sender writes EMPTIED, the receiver MOVED, the sender SETTLED. */
enum ko_settling { KO_SETTLED, KO_EMPTIED, KO_MOVED };

/* A cache line for each slot: one transfer brings the word, the tag and the length. */
struct ko_fifo_line {
	/* 0: empty, for the sender to fill; 1: full, for the receiver to use. The end that has the
	 * slot writes it */
	_Alignas(64) _Atomic uint32_t full;
	uint32_t tag; /* the sender writes it before `full` */
	uint64_t len; /* the sender writes it before `full`; len <= slot_len */
};

struct ko_fifo {
	uint64_t secret; /* if the sender reads it too, both ends map the same memory */
	struct ko_limits limits;
	/* enum ko_settling; written by the sender, the receiver and the sender, in turns */
	_Atomic uint32_t settling;
	struct ko_fifo_line line[KO_MAX_SLOTS];
	/* The slots follow from KO_FIFO_HEAD on, limits.slot_len bytes each. */
};

enum { KO_FIFO_HEAD = 8192 }; /* bytes: sizeof(struct ko_fifo), rounded up to pages */

/* One end of a link through a fifo. */
struct ko_fifo_end {
	struct ko_link link;
	struct ko_fifo *fifo;
	uint32_t at; /* this end's next slot; < nslots */
};

/* The bytes of a fifo with its slots. */
size_t ko_fifo_len(const struct ko_limits *limits);

/* Makes an empty fifo of ko_fifo_len bytes of zeros. */
void ko_fifo_init(struct ko_fifo *fifo, const struct ko_limits *limits, uint64_t secret);

/* The functions of struct ko_link_ops that move slots. The link's struct must begin with a struct
 * ko_fifo_end. */
int ko_fifo_acquire(struct ko_link *link, struct ko_slot *out);
int ko_fifo_commit(struct ko_link *link, const struct ko_slot *slot);
int ko_fifo_peek(struct ko_link *link, void *into, size_t len, struct ko_slot *out);
int ko_fifo_release(struct ko_link *link);
int ko_fifo_progress(struct ko_link *link);
int ko_fifo_drain(struct ko_link *link);
int ko_fifo_settle(struct ko_link *link, enum ko_role near);

#endif
