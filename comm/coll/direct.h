/* The algorithm "direct": each rank reads and writes the others' buffers where they are, without
 * slots or cells for the payload. In a turn on the board the ranks report where their buffers are.
 * In another one they report that they are done.
 *
 * Buffers in windows (kolo_alloc) are read and written as a rank's own. Plain ones are read and
 * written by the kernel (comm/memory/cma.h), which costs a system call for each piece. */
#ifndef COMM_COLL_DIRECT_H
#define COMM_COLL_DIRECT_H

#include "comm/plan/algorithm.h"

extern const struct ko_algorithm_ops ko_direct_ops;

/* How a collective goes directly. */
struct ko_direct_way {
	bool windows;  /* all buffers lie in windows; otherwise they are plain memory */
	bool in_place; /* a broadcast is in place at root */
	bool shared;   /* in plain memory: each rank does a share of a broadcast or reduce */
};

/* Elements that `rank` writes into others' buffers, and reads there: pure. */
struct ko_model ko_direct_model(const struct ko_plan *p, enum ko_coll coll, int rank, int nranks,
				int root, struct ko_direct_way way);

#endif
