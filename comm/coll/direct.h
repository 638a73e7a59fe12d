/* The collectives without slots or cells for the payload: each rank reads and writes the others' buffers where they are. They
 * tell each other where that is in a turn on the board, and that they are done in another. The order of additions is the
 * ring's, and so are the bits.
 *
 * Buffers in windows (kolo_alloc) are read and written as one's own. Plain ones are read and written by the kernel
 * (peer.h), which costs a system call for each piece. */
#ifndef COMM_COLL_DIRECT_H
#define COMM_COLL_DIRECT_H

#include "comm/core/run.h"

/* All of a collective, if it can be done directly: all ranks agree on a way, or on none. *way: that way; with KO_NO_WAY nothing
 * is done yet. Errors: those of ko_wait, ko_cma_read and ko_cma_write. */
int ko_direct(struct ko_run *run, const void *src, void *dst, enum ko_way *way);

#endif
