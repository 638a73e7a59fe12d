/* Eager messages: short ones that can go, or have come, at once. Most messages are. They need no
 * list of transfers. */
#ifndef COMM_P2P_EAGER_H
#define COMM_P2P_EAGER_H

#include "comm/core/call.h"

/* Tries to do a send or recv at once, on a communicator that this thread has claimed. A recv waits
 * as long as other waits spin. Returns true if it is done and counted. Else nothing has happened:
 * ko_transfers_do does it, and reports what is wrong with it. */
bool ko_eager_pass(const struct ko_call *call);

#endif
