/* The algorithm "ring": slots go from each rank to its next, all the way round. It does every
 * collective at any size, between any ranks. */
#ifndef COMM_COLL_RING_H
#define COMM_COLL_RING_H

#include "comm/plan/algorithm.h"
#include "comm/plan/ring.h"

extern const struct ko_algorithm_ops ko_ring_ops;

/* Elements that `rank` sends and receives: pure. */
struct ko_model ko_ring_model(const struct ko_plan *p, enum ko_coll coll, int rank,
			      const struct ko_ring *ring, int root);

#endif
