/* The collectives round the ring, through the board, and directly: post what is asked for, make a plan, run its rounds. */
#ifndef KO_COLLECTIVES_H
#define KO_COLLECTIVES_H

#include "call.h"

/* All of a collective, on the thread that is to do it; its arguments are right. `red` as ko_comm_reducer made it when
 * it was called, NULL: it is called now. Errors: those of the public calls. */
int ko_collective(const struct ko_call *call, const struct ko_reducer *red);

/* The run of a collective that is not begun yet: what it is, what it does to elements, and its plan for slots of so many
 * bytes. `red` as above. */
void ko_collective_plan(struct ko_run *run, const struct ko_call *call, const struct ko_reducer *red,
			size_t slot_len);

#endif
