/* The last steps of making a communicator, for who has the table of its ranks. */
#ifndef COMM_CREATE_CREATE_H
#define COMM_CREATE_CREATE_H

#include "comm/create/open.h"

/* From c->table of all ranks to a working communicator; blocks until the deadline (ko_now_ms(), INT64_MAX for
 * never). Errors: those of kolo_comm_create. */
int ko_comm_complete(struct kolo_comm *c, int64_t deadline);

#endif
