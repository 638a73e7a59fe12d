/* The algorithm "ring": slots go from each rank to its next, all the way round. It does every
 * collective at any size, between any ranks. */
#ifndef COMM_COLL_RING_H
#define COMM_COLL_RING_H

#include "comm/plan/algorithm.h"
#include "comm/plan/ring.h"

/* The order in which the ring adds, and those algorithms that give the same bits. */
#define KO_ORDER_OF_RING "each block from the rank after its owner round to its owner"

extern const struct ko_algorithm_ops ko_ring_ops;

/* Elements that `rank` sends and receives: pure. */
struct ko_model ko_ring_model(const struct ko_plan *p, enum ko_coll coll, int rank,
			      const struct ko_ring *ring, int root);

#endif
