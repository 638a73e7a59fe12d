/* Leaders of groups (leaders.h) add up what their groups give, and exchange these sums. So a small
 * operation between groups takes about log2 of their number of hops.
 * - "partials": leaders exchange whole sums, and each adds up all of them. Also broadcasts, and
 *   all-gathers, in which there is nothing to add.
 * - "center": one leader gets all sums, adds them up, and sends the result to the others. These are
 *   fewer bytes in all, but all of them are that leader's.
 * - "shares", for longer vectors: each gets all sums of its own group's elements, adds those up,
 *   and passes on the result. */
#ifndef COMM_LEADERS_PARTIALS_H
#define COMM_LEADERS_PARTIALS_H

#include "comm/core/comm.h"

extern const struct ko_algorithm_ops ko_partials_ops, ko_center_ops, ko_shares_ops;

#endif
