/* Which algorithm runs. All ranks use the same table, which rank 0 makes when the communicator is made; it is an
 * estimate of costs from what the links were measured to do, and pure arithmetic. */
#ifndef KO_ALGORITHM_H
#define KO_ALGORITHM_H

#include "plan.h"

/* What the links can do: the slowest of each over all edges. */
struct ko_costs {
	double hop_ns;       /* of a small message from a rank to its next */
	double bytes_per_ns; /* of large slots, one way */
};

/* The board below so many bytes of the whole vector, else the ring. */
struct ko_algorithms {
	uint64_t board_end[KO_NCOLLS];
};

/* Is it the name of one? "" is the best. */
int ko_algorithm_known(const char *name);

/* The table for nranks with cells of `room` bytes. `name` forces an algorithm where it can run: the board takes
 * what fits into a cell. */
void ko_algorithm_decide(const char *name, const struct ko_costs *costs, int nranks, size_t room,
			 struct ko_algorithms *out);

#endif
