/* The slots of a link in memory that both ends can read and write: how shared memory carries bytes.
 *
 * One full/empty word per slot. The sender waits for empty, fills the slot, writes full; the receiver waits for
 * full, uses the slot, writes empty. Each end walks the slots in order and keeps its place to itself. */
#ifndef COMM_TRANSPORT_FIFO_H
#define COMM_TRANSPORT_FIFO_H

#include "comm/transport/link.h"

#include <stdatomic.h>

/* While the receiver gets the slots anew. */
enum ko_settling { KO_SETTLED, KO_EMPTIED, KO_MOVED };

/* A cache line for each slot, so that one transfer brings the word, the tag and the length. */
struct ko_fifo_line {
	/* 0: empty, the sender's to fill; 1: full, the receiver's to use. Whoever has the slot writes it. */
	_Alignas(64) _Atomic uint32_t full;
	uint32_t tag; /* written by the sender before full */
	uint64_t len; /* likewise; len <= slot_len */
};

struct ko_fifo {
	uint64_t secret; /* the sender proves by it that it maps the receiver's memory */
	struct ko_limits limits;
	_Atomic uint32_t
		settling; /* enum ko_settling; in turns: the sender's, the receiver's, the sender's */
	struct ko_fifo_line line[KO_MAX_SLOTS];
	/* From KO_FIFO_HEAD on: the slots, limits.slot_len bytes each. */
};

enum { KO_FIFO_HEAD = 8192 }; /* sizeof(struct ko_fifo), rounded up to pages */

/* One end's view. */
struct ko_fifo_end {
	struct ko_link link;
	struct ko_fifo *fifo;
	uint32_t at; /* the slot that this end comes to next; < nslots */
};

/* Bytes of a fifo, its slots included. */
size_t ko_fifo_len(const struct ko_limits *limits);

/* Makes zeroed memory of ko_fifo_len bytes an empty fifo. */
void ko_fifo_init(struct ko_fifo *fifo, const struct ko_limits *limits, uint64_t secret);

/* The data path of links whose struct begins with a ko_fifo_end; see struct ko_link_ops. */
int ko_fifo_acquire(struct ko_link *link, struct ko_slot *out);
int ko_fifo_commit(struct ko_link *link, const struct ko_slot *slot);
int ko_fifo_peek(struct ko_link *link, void *into, size_t len, struct ko_slot *out);
int ko_fifo_release(struct ko_link *link);
int ko_fifo_progress(struct ko_link *link);
int ko_fifo_drain(struct ko_link *link);
int ko_fifo_settle(struct ko_link *link, enum ko_role near);

#endif
