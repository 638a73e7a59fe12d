/* Transfers: messages to and from other ranks, which one loop advances until all are done. Messages
 * between the same two ranks in the same direction are done in order. Others don't wait for each
 * other. */
#ifndef COMM_P2P_TRANSFER_H
#define COMM_P2P_TRANSFER_H

#include "comm/core/run.h"
#include "comm/p2p/lane.h"

/* What a collective's messages run as: a part of its run, with the same tag. */
struct ko_run ko_transfers_run(const struct ko_run *collective);

/* A transfer of n elements of the collective's type. */
struct ko_transfer ko_transfers_part(const struct ko_run *collective, int peer, bool sends,
				     const void *buffer, size_t n);

/* Room for so many transfers. It stays for the next operation. NULL: no memory. */
struct ko_transfer *ko_transfers_room(struct kolo_comm *c, size_t count);

/* Does all transfers of an operation. Blocks. Errors: KOLO_EMISMATCH (the two ends differ in n or
 * type, or belong to different operations; of a message to this rank itself one end is missing),
 * those of ko_wait, ko_lane_find and the lanes. */
int ko_transfers_do(struct ko_run *run, struct ko_transfer *all, size_t count);

/* Is a transfer to or from `rank` not done yet? For struct ko_run's `needs`. */
bool ko_transfers_need(const struct kolo_comm *c, int rank);

#endif
