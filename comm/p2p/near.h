/* Near lanes: lanes in memory that the ranks of a host share. A message goes through the lines and
 * slots of its lane. A large one stays in the sender's buffer, and both ends copy it from there to
 * the receiver's (rendezvous). */
#ifndef COMM_P2P_NEAR_H
#define COMM_P2P_NEAR_H

#include "comm/p2p/lane.h"

extern const struct ko_lane_ops ko_near_ops;

#endif
