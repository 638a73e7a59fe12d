/* The algorithm "partials": leaders of groups (leaders.h) add up what their groups give, and
 * exchange these sums. So a small operation between groups takes about log2 of their number of
 * hops. Also broadcasts, and all-gathers, in which there is nothing to add. */
#ifndef COMM_COLL_PARTIALS_H
#define COMM_COLL_PARTIALS_H

#include "comm/core/comm.h"

extern const struct ko_algorithm_ops ko_partials_ops;

/* Sets the bytes of vectors that it can do (partials_room), and below which leaders exchange whole
 * sums (whole_end). The other costs must be set. `forced`: the user named this algorithm, so it
 * runs wherever it can. */
void ko_partials_limit(struct ko_costs *costs, int nranks, bool forced);

#endif
