/* The six moves of a ring, all that collectives are made of. Each handles one piece: at most one slot in from
 * prev, at most one slot out to next. They block until the neighbours have done their parts. */
#ifndef COMM_COLL_MOVES_H
#define COMM_COLL_MOVES_H

#include "comm/core/run.h"

/* What moves are made of. They block. Errors: the link's, with the names of both ranks, and ko_wait's. */

/* Waits for a free slot to next. */
int ko_wait_room(struct ko_run *run, const struct ko_edges *e, struct ko_slot *out);

/* Sends it, with `len` bytes. */
int ko_hand_over(struct ko_run *run, const struct ko_edges *e, struct ko_slot *out, size_t len);

/* Waits for the oldest slot from prev, which must be this operation's and have `len` bytes. Its bytes may have been put
 * `into` a place (NULL: none); then in->ptr is that. */
int ko_wait_data(struct ko_run *run, const struct ko_edges *e, void *into, size_t len, struct ko_slot *in);

/* Returns it to prev. */
int ko_give_back(struct ko_run *run, const struct ko_edges *e);

/* Waits until what was sent to next needs no further call. */
int ko_wait_sent(struct ko_run *run, const struct ko_edges *e);

/* The operation fills a vector, this rank's at dst: where the link from prev can put pieces there by itself, it may. */
void ko_offer(struct ko_run *run, void *dst);

/* Sends fn(src): run->copy, or run->red.first for the first rank of an addition. `to` is where it belongs in this rank's
 * vector, NULL: in none. */
int ko_send(struct ko_run *run, ko_fill_fn *fn, const void *src, const void *to, size_t n);

/* Adds own elements to those coming in and sends the result on. */
int ko_add_and_pass(struct ko_run *run, const void *own, size_t n);

/* Adds own elements to those coming in and finishes them: the result goes to dst, which may be own. */
int ko_add_and_keep(struct ko_run *run, const void *own, void *dst, size_t n);

/* Adds own elements to those coming in and finishes them: the result goes to dst, which may be own, and on to next. */
int ko_add_keep_and_pass(struct ko_run *run, const void *own, void *dst, size_t n);

/* What comes in goes to dst and on to next. */
int ko_keep_and_pass(struct ko_run *run, void *dst, size_t n);

/* What comes in goes to dst. */
int ko_keep(struct ko_run *run, void *dst, size_t n);

/* What this rank gave belongs into its own dst too; in place it is there already. Sends nothing. 0. */
int ko_keep_own(struct ko_run *run, void *dst, const void *src, size_t n);

/* Waits until what was sent needs no further call from this rank. */
int ko_drain(struct ko_run *run);

/* What rounds are made of: these, which do a move at once, or others that do it elsewhere or later. */
struct ko_moves {
	int (*send)(struct ko_run *run, ko_fill_fn *fn, const void *src, const void *to, size_t n);
	int (*add_and_pass)(struct ko_run *run, const void *own, size_t n);
	int (*add_and_keep)(struct ko_run *run, const void *own, void *dst, size_t n);
	int (*add_keep_and_pass)(struct ko_run *run, const void *own, void *dst, size_t n);
	int (*keep_and_pass)(struct ko_run *run, void *dst, size_t n);
	int (*keep)(struct ko_run *run, void *dst, size_t n);
	int (*keep_own)(struct ko_run *run, void *dst, const void *src, size_t n);
};

extern const struct ko_moves ko_moves_now;

#endif
