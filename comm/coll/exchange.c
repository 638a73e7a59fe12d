/* The algorithm "exchange" (ko_exchange_ops): an all-gather of whole vectors, then a sum on each
 * rank. */
#include "comm/coll/exchange.h"

#include "comm/coll/addition.h"
#include "comm/coll/tree.h"
#include "comm/rings/bruck.h"
#include "comm/rings/moves.h"

size_t ko_exchange_room(const struct kolo_comm *c)
{
	size_t each = KO_SCRATCH / (size_t)c->nranks;

	each = ko_min_size(each, c->agreed.limits.slot_len);
	return ko_min_size(each, ko_bruck_room(c));
}

/* All-reduces. And a barrier, if it needs fewer hops than round the ring. */
static uint64_t end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows)
{
	(void)windows;
	if (coll == KO_ALL_REDUCE)
		return costs->exchange_room + 1;
	return coll == KO_BARRIER && costs->exchange_hops < nranks - 1;
}

/* Each of the other ranks' vectors is written, and read. */
static struct ko_estimate cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
			       bool windows)
{
	double n = nranks;

	(void)coll, (void)windows;
	return (struct ko_estimate){ (double)costs->exchange_hops * costs->hop_ns,
				     2 * (n - 1) / costs->bytes_per_ns };
}

/* An op made at run time may have another factor on each rank, and no factors are sent here. */
static bool takes(const struct ko_run *run)
{
	return run->desc.op != KO_DESC_PREMUL;
}

/* A barrier is an exchange of nothing. */
static int exchange(struct ko_run *run, const void *src, void *dst)
{
	struct kolo_comm *c = run->comm;
	size_t n = run->plan.count, len = n * run->size;
	const struct ko_vectors all = { .first = c->scratch, .stride = len, .scalar = &run->red.s };
	int rc;

	if (n) /* dst may be src, and written before all of it has gone */
		run->copy(c->scratch + (size_t)c->rank * len, src, n, &run->red.s);
	rc = ko_bruck_gather(run, c->scratch, n);
	if (rc < 0)
		return rc;
	if (c->sums == KO_SUMS_RING) {
		ko_add_up_all(run, &all, NULL, dst);
		return ko_drain(run);
	}
	rc = ko_drain(run); /* links may send from what is overwritten now */
	if (rc == 0)
		ko_tree_add_in_place(run, &all, n, dst);
	return rc;
}

static struct ko_model model(const struct ko_run *run)
{
	size_t others = (size_t)run->comm->nranks - 1;

	return (struct ko_model){ others * run->plan.count, others * run->plan.count };
}

const struct ko_algorithm_ops ko_exchange_ops = {
	.name = "exchange",
	.what = "everyone's whole vector to every rank, which adds up all of them",
	.sums = 1 << KO_SUMS_RING | 1 << KO_SUMS_TREE,
	.reach = KO_NETWORK,
	.end = end,
	.cost = cost,
	.takes = takes,
	.run = exchange,
	.model = model,
};
