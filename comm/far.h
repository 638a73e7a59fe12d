/* Far lanes: where ranks are on several hosts, lanes are links of whatever transport joins the two. One is made when its
 * sender first has something for its receiver: the sender calls, and the receiver answers as soon as it waits in any call,
 * whomever it waits for. */
#ifndef KO_FAR_H
#define KO_FAR_H

#include "lane.h"
#include "run.h"

/* An end of a lane of a communicator that is spread over hosts. KOLO_ENOMEM. */
int ko_far_open(struct ko_lane_end *end);

/* Moves the end's transfers on, as far as that goes without blocking. KO_EAGAIN: they could not be moved; 0: they could.
 * Errors: KOLO_EMISMATCH, those of the link and of ko_lifelines_call. */
int ko_far_advance(struct ko_run *run, struct ko_lane_end *end);

/* Answers calls, from time to time, and looks after lanes that nobody here waits for. KOLO_ENOMEM, KOLO_ESYS. */
int ko_far_listen(struct kolo_comm *c);

/* An operation has failed with `code`, and its text: where it was a far lane's link, the text gets the names of both ranks,
 * or another cause comes first. */
int ko_far_explain(struct ko_run *run, int code);

/* Where there are more than KOLO_LANES to send through, the idle ones are closed that have not been used for longest; their
 * receivers learn it when they look. */
void ko_far_trim(struct kolo_comm *c);

/* All of them. Of a communicator that has failed nobody waits for what is under way. */
void ko_far_close_all(struct kolo_comm *c, bool failed);

/* Bytes allocated for slots. */
size_t ko_far_memory(const struct kolo_comm *c);

#endif
