/* A collective from beginning to end: post what is asked for, choose an algorithm, run it,
 * count. */
#ifndef COMM_COLL_COLLECTIVES_H
#define COMM_COLL_COLLECTIVES_H

#include "comm/core/call.h"

/* Is the call an all_to_all, gather or scatter that is small enough for the board, or for leaders?
 * Larger ones consist of messages. All ranks answer alike: they have the same n. */
static inline bool ko_collective_takes_parts(const struct ko_call *call)
{
	const struct kolo_comm *c = call->comm;
	const struct ko_algorithms *t = &c->agreed.algorithms;
	size_t bytes = call->n * kolo_type_size(call->type) * (size_t)c->nranks;

	return ko_coll_has_messages(call->coll) && !call->uneven && c->nranks > 1 &&
	       (bytes < ko_parts_end(t, call->coll) ||
		(call->coll == KO_ALL_TO_ALL && bytes < t->led_end));
}

/* Is the call one for ko_collective, and not for p2p.h? Its arguments may still be wrong. */
static inline bool ko_collective_takes(const struct ko_call *call)
{
	return call->coll < KO_NCOLLS || ko_collective_takes_parts(call);
}

/* Does all of a collective, on the calling thread. `red` is what ko_op_reducer returned when the
 * user called; the arguments were checked then. NULL: the user calls now, and they are checked
 * here. Errors: those of the public calls. */
int ko_collective(const struct ko_call *call, const struct ko_reducer *red);

/* Fills in the run of a collective that is not begun yet: what it is, what it does to elements, and
 * its plan for slots of slot_len bytes. `red` as for ko_collective. */
void ko_collective_plan(struct ko_run *run, const struct ko_call *call,
			const struct ko_reducer *red, size_t slot_len);

#endif
