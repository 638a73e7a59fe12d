/* Operations between pairs of ranks: send, recv, and the collectives that are sets of messages:
 * all_to_all, gather and scatter. If those are small enough they go through the board instead
 * (comm/coll/collectives.h). */
#ifndef COMM_P2P_P2P_H
#define COMM_P2P_P2P_H

#include "comm/core/call.h"

/* Does the call, on the thread that is to do it. Its arguments have been checked. Blocks. Errors:
 * those of the public function. */
int ko_p2p(const struct ko_call *call);

/* Checks the arguments of a collective and does it. Blocks. Errors: those of the public
 * function. */
int ko_p2p_now(const struct ko_call *call);

/* Does `count` sends and recvs of one communicator together, which next(what) returns one by one.
 * Their arguments have been checked. Blocks. Errors: those of kolo_group_end. */
typedef const struct ko_call *ko_next_fn(void *what);
int ko_p2p_together(struct kolo_comm *c, size_t count, ko_next_fn *next, void *what);

#endif
