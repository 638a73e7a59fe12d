/* Far lanes: the lanes of a communicator whose ranks are on several hosts. Each is a link of the
 * transport that joins the two ranks. It is made when its sender first has a message for its
 * receiver: the sender dials the receiver. The receiver answers as soon as it waits in any
 * operation of this communicator, for whatever rank. */
#ifndef COMM_P2P_FAR_H
#define COMM_P2P_FAR_H

#include "comm/p2p/lane.h"
#include "comm/transport/link.h"

extern const struct ko_lane_ops ko_far_ops;

/* Answers ranks that dial this one, and moves on lanes that nothing here waits for. At most once a
 * millisecond, unless a lane is being joined. Never blocks. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int ko_far_listen(struct kolo_comm *c);

/* The link of this end, for whoever sends other things through it than transfers (comm/mail). join:
 * takes the next steps to join it, if it isn't. Returns 0, or KO_EAGAIN: it is not joined yet.
 * Errors: those of struct ko_lane_ops's advance; the end is then the one that has failed. */
int ko_far_link(struct kolo_comm *c, struct ko_lane_end *end, bool join, struct ko_link **out);

/* Bytes of a slot of that link, once there is one. */
size_t ko_far_slot(const struct ko_lane_end *end);

#endif
