/* What the links can do, measured when a communicator is made. */
#ifndef COMM_CREATE_PROBE_H
#define COMM_CREATE_PROBE_H

#include "comm/core/comm.h"

/* Measures the link to next with both kinds of stores and chooses the better for it; then all ranks get the table of
 * algorithms that rank 0 makes of everyone's measurements. On all ranks; blocks. Errors: those of a collective. */
int ko_probe(struct kolo_comm *c);

#endif
