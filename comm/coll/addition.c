/* Adding up whole vectors of all ranks (ko_add_up, ko_add_up_all). */
#include "comm/coll/addition.h"

void ko_add_up(const struct ko_run *run, const struct ko_vectors *v, int owner, struct ko_piece q,
	       void *dst)
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

void ko_add_up_all(const struct ko_run *run, const struct ko_vectors *v, void *dst)
{
	for (int b = 0; b < run->comm->nranks; b++) {
		struct ko_piece q = ko_plan_block(&run->plan, b);

		ko_add_up(run, v, b, q, ko_at_mut(run, dst, q.first));
	}
}
