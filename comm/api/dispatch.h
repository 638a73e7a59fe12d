/* Where every call of a public operation goes first. It is done at once, or left to a queue or to a
 * group. */
#ifndef COMM_API_DISPATCH_H
#define COMM_API_DISPATCH_H

#include "comm/core/call.h"

/* Does the call, or leaves it to the group that is open on this thread, or to its queue. Errors:
 * the operation's; KOLO_ENOMEM. */
int ko_call_do(const struct ko_call *call);

#endif
