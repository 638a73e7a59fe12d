/* Doing a call, on the thread that is to do it, when its turn has come. */
#ifndef COMM_API_PERFORM_H
#define COMM_API_PERFORM_H

#include "comm/core/call.h"

/* Does it here and now, or records it, when its turn has come. `red` as ko_comm_reducer made it, NULL: it is made. */
int ko_call_perform(const struct ko_call *call, const struct ko_reducer *red);

/* Blocks until what was called before `place` is done, or the communicator has failed: a queue may be held up by another
 * communicator. */
int ko_call_wait_turn(struct kolo_comm *c, uint64_t place);

#endif
