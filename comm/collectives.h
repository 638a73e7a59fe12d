/* The collectives round the ring, through the board, and directly: post what is asked for, make a plan, run its rounds. */
#ifndef KO_COLLECTIVES_H
#define KO_COLLECTIVES_H

#include "call.h"

/* All of a collective, on the thread that is to do it; its arguments are right. `red` as ko_collective_reducer made it when
 * it was called, NULL: it is called now. Errors: those of the public calls. */
int ko_collective(const struct ko_call *call, const struct ko_reducer *red);

/* What the call's op does, which may be destroyed right after the call. */
struct ko_reducer ko_collective_reducer(const struct ko_call *call);

#endif
