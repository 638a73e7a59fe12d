/* Adding up whole vectors of all ranks that lie in this rank's reach, in the order of the ring. */
#ifndef COMM_COLL_ADDITION_H
#define COMM_COLL_ADDITION_H

#include "comm/core/run.h"

/* Where the vectors of all ranks lie, by rank. */
struct ko_vectors {
	const char *first; /* rank 0's */
	size_t stride;     /* bytes from one to the next */
	/* Of rank 0's reducer, and bytes to the next one's. 0 bytes: it is the same for all */
	const union ko_scalar *scalar;
	size_t scalar_stride;
};

/* dst = the elements q of all vectors, added in the order of a block that belongs to `owner`. */
void ko_add_up(const struct ko_run *run, const struct ko_vectors *v, int owner, struct ko_piece q,
	       void *dst);

/* dst = the sum of the vectors, each block in the order of its owner. */
void ko_add_up_all(const struct ko_run *run, const struct ko_vectors *v, void *dst);

#endif
