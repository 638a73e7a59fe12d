/* The collectives for small messages. Through the board each rank writes once, and reads what it needs: one hop instead
 * of the ring's 2(N-1). Where there is no board, everyone's vector goes round the ring, and everyone adds up all of them:
 * N-1 hops. The order of additions is the ring's, and so are the bits. */
#ifndef COMM_COLL_ONESHOT_H
#define COMM_COLL_ONESHOT_H

#include "comm/core/run.h"

/* All of a collective of which each rank writes at most ko_board_room bytes. Errors: those of ko_wait. */
int ko_oneshot(struct ko_run *run, const void *src, void *dst);

/* Bytes of a vector of which a rank can hold everyone's. */
size_t ko_oneshot_room(const struct kolo_comm *c);

/* An all-reduce of at most so many bytes without the board, with an op that is the same on all ranks. Errors as above. */
int ko_exchange(struct ko_run *run, const void *src, void *dst);

#endif
