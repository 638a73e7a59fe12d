/* The collectives round the ring, through the board, and directly: post what is asked for, make a plan, run its rounds. */
#ifndef COMM_COLL_COLLECTIVES_H
#define COMM_COLL_COLLECTIVES_H

#include "comm/core/call.h"

/* all_to_all, gather and scatter consist of messages: is it one of them, and small enough for the board? */
bool ko_collective_takes_parts(const struct ko_call *call);

/* Is the call one for ko_collective, and not for pairs.h? Its arguments may still be wrong. */
static inline bool ko_collective_takes(const struct ko_call *call)
{
	return call->coll < KO_NCOLLS || ko_collective_takes_parts(call);
}

/* Bytes of the whole vector from which on all_to_all, gather and scatter don't go through the board. */
uint64_t ko_collective_parts_end(const struct kolo_comm *c);

/* All of a collective, on the thread that is to do it; its arguments are right. `red` as ko_comm_reducer made it when
 * it was called, NULL: it is called now. Errors: those of the public calls. */
int ko_collective(const struct ko_call *call, const struct ko_reducer *red);

/* The run of a collective that is not begun yet: what it is, what it does to elements, and its plan for slots of so many
 * bytes. `red` as above. */
void ko_collective_plan(struct ko_run *run, const struct ko_call *call, const struct ko_reducer *red,
			size_t slot_len);

#endif
