/* Adding up whole vectors of all ranks that lie in this rank's reach, in the order of the ring
 * (ko_add_up, ko_add_up_all). Inline: of a small all-reduce a call would take a seventh. */
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
static inline void ko_add_up(const struct ko_run *run, const struct ko_vectors *v, int owner,
			     struct ko_piece q, void *dst)
{
	int nranks = run->comm->nranks;
	const void *partial = NULL;

	if (q.n == 0)
		return;
	for (int k = 1; k <= nranks; k++) {
		size_t rank = (size_t)ko_ring_back(&run->comm->ring, owner, -k);
		const void *own = ko_at(run, v->first + rank * v->stride, q.first);
		const union ko_scalar *s =
			(const void *)((const char *)v->scalar + rank * v->scalar_stride);

		if (k > 1)
			run->red.combine(dst, partial, own, q.n, s);
		else if (run->red.first != run->copy)
			run->red.first(dst, own, q.n, s);
		partial = k == 1 && run->red.first == run->copy ? own : dst;
	}
	if (run->red.finish != run->copy)
		run->red.finish(dst, dst, q.n, &run->red.s);
}

/* dst = the sum of the vectors, each block in the order of its owner. */
static inline void ko_add_up_all(const struct ko_run *run, const struct ko_vectors *v, void *dst)
{
	for (int b = 0; b < run->comm->nranks; b++) {
		struct ko_piece q = ko_plan_block(&run->plan, b);

		ko_add_up(run, v, b, q, ko_at_mut(run, dst, q.first));
	}
}

#endif
