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

/* May this rank's elements be read where the program has them, after so many others were added? If
 * dst is there too, it is overwritten by the first sum, or by what is made of the first elements.
 */
static inline bool ko_adds_mine(const struct ko_run *run, const void *mine, const void *dst,
				int others)
{
	return mine && (mine != dst || others < (run->red.first == run->copy ? 2 : 1));
}

/* dst = the elements q of all vectors, added in the order of a block that belongs to `owner`.
 * `mine`: the same elements of this rank where the program has them. They are read there if they
 * may be: what a rank has given is on its way to other cores. NULL: they are read where the others'
 * are. */
static inline void ko_add_up(const struct ko_run *run, const struct ko_vectors *v, int owner,
			     struct ko_piece q, const void *mine, void *dst)
{
	int nranks = run->comm->nranks, me = run->comm->rank;
	const void *partial = NULL;

	if (q.n == 0)
		return;
	for (int k = 1; k <= nranks; k++) {
		size_t rank = (size_t)ko_ring_back(&run->comm->ring, owner, -k);
		const void *own = ko_at(run, v->first + rank * v->stride, q.first);
		const union ko_scalar *s =
			(const void *)((const char *)v->scalar + rank * v->scalar_stride);

		if ((int)rank == me && ko_adds_mine(run, mine, dst, k - 1)) {
			own = mine;
			s = &run->red.s;
		}
		if (k > 1)
			run->red.combine(dst, partial, own, q.n, s);
		else if (run->red.first != run->copy)
			run->red.first(dst, own, q.n, s);
		partial = k == 1 && run->red.first == run->copy ? own : dst;
	}
	if (run->red.finish != run->copy)
		run->red.finish(dst, dst, q.n, &run->red.s);
}

/* dst = the sum of the vectors, each block in the order of its owner. `mine`: as above, all of
 * it. */
static inline void ko_add_up_all(const struct ko_run *run, const struct ko_vectors *v,
				 const void *mine, void *dst)
{
	for (int b = 0; b < run->comm->nranks; b++) {
		struct ko_piece q = ko_plan_block(&run->plan, b);

		ko_add_up(run, v, b, q, ko_at(run, mine, q.first), ko_at_mut(run, dst, q.first));
	}
}

#endif
