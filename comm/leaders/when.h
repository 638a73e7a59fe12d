/* When partials, center and shares (partials.h) run: the sizes for which there is room, and what
 * they cost. For struct ko_algorithm_ops. */
#ifndef COMM_LEADERS_WHEN_H
#define COMM_LEADERS_WHEN_H

#include "comm/core/comm.h"

/* Bytes of vectors that a leader can hold; 0: there are no groups, or too many. */
uint64_t ko_partials_room(const struct kolo_comm *c);

uint64_t ko_partials_end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows);
uint64_t ko_center_end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows);
uint64_t ko_shares_end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows);

struct ko_estimate ko_partials_cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
				    bool windows);
struct ko_estimate ko_center_cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
				  bool windows);
struct ko_estimate ko_shares_cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
				  bool windows);

#endif
