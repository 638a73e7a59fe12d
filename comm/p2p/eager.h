/* A short message that can go, or has come, at once: the way of most messages, without a list of transfers. */
#ifndef COMM_P2P_EAGER_H
#define COMM_P2P_EAGER_H

#include "comm/core/call.h"

/* A send or recv on a communicator that this thread has claimed: done, and counted? Else nothing has happened. Waits as long
 * as other waits spin. Never fails: whatever is wrong with it is for ko_transfers_do to find, and to tell. */
bool ko_eager_pass(const struct ko_call *call);

#endif
