/* The six moves of a ring, of which rounds are made. A move handles one piece: at most one slot in
 * from prev, at most one slot out to next. It blocks until the neighbours have done their parts. */
#ifndef COMM_RINGS_MOVES_H
#define COMM_RINGS_MOVES_H

#include "comm/rings/slots.h"

struct ko_step;

/* Offers dst to the link from prev: it may put pieces of the vector there by itself, if it can. */
void ko_offer(struct ko_run *run, void *dst);

/* Sends fn(src). fn is run->copy, or run->red.first for the first rank of an addition. `to` is the
 * piece's place in this rank's vector; NULL: it has none. */
int ko_send(struct ko_run *run, ko_fill_fn *fn, const void *src, const void *to, size_t n);

/* Adds own elements to those coming in and sends the result on. */
int ko_add_and_pass(struct ko_run *run, const void *own, size_t n);

/* Adds own elements to those coming in and finishes them: the result goes to dst, which may be
 * own. */
int ko_add_and_keep(struct ko_run *run, const void *own, void *dst, size_t n);

/* Adds own elements to those coming in and finishes them: the result goes to dst, which may be own,
 * and on to next. */
int ko_add_keep_and_pass(struct ko_run *run, const void *own, void *dst, size_t n);

/* Copies what comes in to dst, and sends it on to next. */
int ko_keep_and_pass(struct ko_run *run, void *dst, size_t n);

/* Copies what comes in to dst. */
int ko_keep(struct ko_run *run, void *dst, size_t n);

/* Copies what this rank gave to its own dst. In place it is there already. Sends nothing. Returns
 * 0. */
int ko_keep_own(struct ko_run *run, void *dst, const void *src, size_t n);

/* Does a step with the links of these edges. */
int ko_do_step(struct ko_run *run, const struct ko_edges *along, const struct ko_step *s);

/* Waits until what was sent round the ring needs no further call from this rank. */
int ko_drain(struct ko_run *run);

/* The moves that a run uses: those above, which act at once, or others that act elsewhere or
 * later. */
struct ko_moves {
	int (*send)(struct ko_run *run, ko_fill_fn *fn, const void *src, const void *to, size_t n);
	int (*add_and_pass)(struct ko_run *run, const void *own, size_t n);
	int (*add_and_keep)(struct ko_run *run, const void *own, void *dst, size_t n);
	int (*add_keep_and_pass)(struct ko_run *run, const void *own, void *dst, size_t n);
	int (*keep_and_pass)(struct ko_run *run, void *dst, size_t n);
	int (*keep)(struct ko_run *run, void *dst, size_t n);
	int (*keep_own)(struct ko_run *run, void *dst, const void *src, size_t n);
	int (*step)(struct ko_run *run, const struct ko_edges *along, const struct ko_step *s);
};

/* The moves above. */
extern const struct ko_moves ko_moves_now;

#endif
