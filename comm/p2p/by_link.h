/* Long messages to the next rank of the ring go through the slots of the link, if both ranks share
 * the memory of these: they are larger than a lane's, and their memory is there already. Only those
 * of collectives do so, which come in the same order at both ends; others would get in the way of
 * collectives (why: D199 in comm/DECISIONS.md). */
#ifndef COMM_P2P_BY_LINK_H
#define COMM_P2P_BY_LINK_H

#include "comm/core/run.h"
#include "comm/p2p/lane.h"

/* Sender: does the message go through the link's slots, unless it goes by rendezvous? */
bool ko_link_carries(const struct ko_run *run, const struct ko_transfer *t);

/* Sends the message's next part, or receives it. KO_EAGAIN: no slot is free, or none has come.
 * Errors: KOLO_EMISMATCH, KOLO_ESYS. */
int ko_link_send_part(struct ko_run *run, struct ko_transfer *t);
int ko_link_recv_part(struct ko_run *run, struct ko_transfer *t);

#endif
