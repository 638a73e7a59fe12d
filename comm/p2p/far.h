/* Far lanes: where ranks are on several hosts, lanes are links of whatever transport joins the two. One is made when its
 * sender first has something for its receiver: the sender calls, and the receiver answers as soon as it waits in any call,
 * whomever it waits for. */
#ifndef COMM_P2P_FAR_H
#define COMM_P2P_FAR_H

#include "comm/p2p/lane.h"

extern const struct ko_lane_ops ko_far_ops;

/* Answers calls, from time to time, and looks after lanes that nobody here waits for. KOLO_ENOMEM, KOLO_ESYS. */
int ko_far_listen(struct kolo_comm *c);

#endif
