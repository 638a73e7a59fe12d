/* Measuring: what the links, the board and CMA can do. */
#ifndef COMM_CREATE_PROBE_H
#define COMM_CREATE_PROBE_H

#include "comm/core/comm.h"

/* Fills c->agreed with the costs that were measured and the table of algorithms that rank 0 makes
 * of them, and chooses the stores for the link to next. Or takes all that from `like`, if that is
 * not NULL: a communicator of the same ranks in the same order. All ranks call it once, when the
 * communicator is made. Blocks. Errors: those of a collective. */
int ko_probe(struct kolo_comm *c, const struct kolo_comm *like);

#endif
