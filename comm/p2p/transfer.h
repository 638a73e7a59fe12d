/* Transfers: messages between this rank and others, each to or from one of them, advanced by one loop until all are done.
 * Those between the same two ranks in the same direction are done in order; the others don't wait for each other. */
#ifndef COMM_P2P_TRANSFER_H
#define COMM_P2P_TRANSFER_H

#include "comm/core/run.h"
#include "comm/p2p/lane.h"

/* Does all of them. Errors: KOLO_EMISMATCH (the two ends differ in n or type, or belong to different operations; one end is
 * missing, where both are this rank), those of ko_wait, ko_lane_find and of the
 * lanes. */
int ko_transfers_do(struct ko_run *run, struct ko_transfer *all, size_t count);

/* Is there still something to do with `rank`? See struct ko_run. */
bool ko_transfers_need(const struct kolo_comm *c, int rank);

#endif
