/* Slots of a rank's two links in a ring: waiting for them, and handing them over. Here is what
 * moves and tracks are made of. */
#ifndef COMM_RINGS_SLOTS_H
#define COMM_RINGS_SLOTS_H

#include "comm/core/run.h"

/* Waiting blocks. Errors: the link's, with the names of both ranks, and those of ko_wait. */

/* Waits for a free slot to e->next. */
int ko_wait_room(struct ko_run *run, const struct ko_edges *e, struct ko_slot *out);

/* Sends that slot, with `len` bytes. */
int ko_hand_over(struct ko_run *run, const struct ko_edges *e, struct ko_slot *out, size_t len);

/* Waits for the oldest slot from e->prev, which must be this operation's and have `len` bytes. The
 * link may have put its bytes `into` a place; then in->ptr is that place. NULL: there is no
 * place. */
int ko_wait_data(struct ko_run *run, const struct ko_edges *e, void *into, size_t len,
		 struct ko_slot *in);

/* Checks such a slot, which has come. Errors: KOLO_EMISMATCH, KOLO_ESYS. */
int ko_check_slot(struct ko_run *run, const struct ko_edges *e, size_t len,
		  const struct ko_slot *in);

/* Returns that slot to e->prev. */
int ko_give_back(struct ko_run *run, const struct ko_edges *e);

/* Waits until what was sent to e->next needs no further call from this rank. */
int ko_wait_sent(struct ko_run *run, const struct ko_edges *e);

/* A link that has failed. */
struct ko_broken {
	const struct ko_link *link;
	int peer, awaited; /* the rank at its other end, and the rank that is waited for */
	bool beside; /* nothing is awaited of this link; it was advanced while this rank waited */
	bool sent;   /* what was sent through it was to be drained */
};

/* A link failed with `code` and the thread's error. Ranks that know the cause get some time to
 * report it. Returns the cause; or the failure, with the names of both ranks.
 *
 * A rank that had done its part and left needs nothing. Then this returns KO_EAGAIN if the link is
 * `beside`, and 0 if it was to be drained. This rank may have no lifeline to that rank. Then nobody
 * reports here that it left. If it died, ranks with a lifeline to it report that. */
int ko_slot_failed(struct ko_run *run, const struct ko_broken *f, int code);

#endif
