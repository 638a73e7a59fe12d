/* The last steps of making a communicator, after its ranks are known. */
#ifndef COMM_CREATE_CREATE_H
#define COMM_CREATE_CREATE_H

#include "comm/create/open.h"

/* Makes a working communicator of one that ko_comm_start has returned and whose c->table has all
 * ranks. `like` has the same ranks in the same order, and what was measured for it holds; NULL:
 * there is none. Blocks until the deadline (ko_now_ms(), INT64_MAX: never). Errors: those of
 * kolo_comm_create. */
int ko_comm_complete(struct kolo_comm *c, const struct kolo_comm *like, int64_t deadline);

#endif
