/* Runs the lists of all stages on paper. */
#ifndef ZERO_PARALLEL_SIMULATE_H
#define ZERO_PARALLEL_SIMULATE_H

#include "zero/parallel/lists.h"

/* What a run came to. */
struct zero_simulated {
	double seconds;
	int stuck; /* the first stage that did not come to the end of its list; -1: all did */
	int at;    /* the action there that did not begin, or did not end */
	int stuck_too, at_too; /* another one, if there is one; else -1 */
};

/* Runs lists in which each message has its counterpart. A message passes when its sender and its
 * receiver have both come to it. Errors: KOLO_ENOMEM. */
int zero_simulate(const struct zero_pipeline_sizes *sizes, const struct zero_list *lists,
		  const struct kolo_pipeline_times *times, struct zero_simulated *out);

#endif
