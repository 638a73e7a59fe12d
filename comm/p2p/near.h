/* Near lanes: those in the memory that the ranks of a host share. A message lies in lines and slots of its lane; a large
 * one stays where it is, and both ends copy it. */
#ifndef COMM_P2P_NEAR_H
#define COMM_P2P_NEAR_H

#include "comm/p2p/lane.h"

extern const struct ko_lane_ops ko_near_ops;

#endif
