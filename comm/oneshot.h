/* The collectives through the board, for small messages: each rank writes once, and reads what it needs: one hop
 * instead of the ring's 2(N-1). The order of additions is the ring's, and so are the bits. */
#ifndef KO_ONESHOT_H
#define KO_ONESHOT_H

#include "run.h"

/* All of a collective of which each rank writes at most ko_board_room bytes. Errors: those of ko_wait. */
int ko_oneshot(struct ko_run *run, const void *src, void *dst);

#endif
