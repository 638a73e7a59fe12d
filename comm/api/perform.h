/* Doing a call when its turn in the communicator's order has come. */
#ifndef COMM_API_PERFORM_H
#define COMM_API_PERFORM_H

#include "comm/core/call.h"

/* Does the call on this thread, or records it if its queue is a stream. Its turn has come, and its
 * arguments have been checked. `red`: what ko_op_reducer returned at the time of the call; NULL:
 * that is now. Errors: the operation's. */
int ko_call_perform(const struct ko_call *call, const struct ko_reducer *red);

/* Blocks until all places before `place` in the communicator's order are served. Returns 0, or the
 * cause of the communicator's failure: it does not wait any longer then, since another communicator
 * may hold up the queue. */
int ko_call_wait_turn(struct kolo_comm *c, uint64_t place);

#endif
