/* The algorithm "partials": leaders of groups (leaders.h) add up what their groups give, and
 * exchange these sums. So a small operation between groups takes about log2 of their number of
 * hops. Also broadcasts, and all-gathers, in which there is nothing to add. */
#ifndef COMM_COLL_PARTIALS_H
#define COMM_COLL_PARTIALS_H

#include "comm/core/comm.h"

extern const struct ko_algorithm_ops ko_partials_ops;

/* Bytes of the longest vector that it can do with such groups; 0: none. */
size_t ko_partials_room(const struct ko_shape *shape);

#endif
