/* What ranks do in pairs: send and recv, and the collectives that are a set of them: all_to_all, gather, scatter, unless
 * they are small enough for the board (collectives.h). */
#ifndef COMM_P2P_P2P_H
#define COMM_P2P_P2P_H

#include "comm/core/call.h"

/* All of it, on the thread that is to do it; its arguments are right. Errors: those of the public calls. */
int ko_p2p(const struct ko_call *call);

/* The same for a collective whose arguments nobody has checked. Also KOLO_EINVAL. */
int ko_p2p_now(const struct ko_call *call);

/* Sends and recvs of one communicator, all together. `count` of them, which next() gives one by one. */
typedef const struct ko_call *ko_next_fn(void *what);
int ko_p2p_together(struct kolo_comm *c, size_t count, ko_next_fn *next, void *what);

#endif
