/* The algorithm "ring" (ko_ring_ops): the rounds of a collective, one after the other. */
#include "comm/coll/ring.h"

#include "comm/base/clock.h"
#include "comm/coll/rounds.h"
#include "comm/core/learn.h"

static uint64_t end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows)
{
	(void)coll, (void)costs, (void)nranks, (void)windows;
	return UINT64_MAX;
}

/* Crossings are the bytes, as a share of the vector, that are written for another rank or read from
 * another one, one after the other until the last rank has its result. */
static struct ko_estimate cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
			       bool windows)
{
	double n = nranks, hops = n - 1, crossings;

	(void)windows;
	switch (coll) {
	case KO_ALL_REDUCE:
		hops = 2 * (n - 1);
		crossings = 4 * (n - 1) / n;
		break;
	case KO_REDUCE_SCATTER:
	case KO_ALL_GATHER: crossings = 2 * (n - 1) / n; break;
	/* Of broadcast and reduce. A message of one slot is all in one rank of the chain, then all
	 * in the next. */
	default: crossings = 2 * (n - 1); break;
	}
	return (struct ko_estimate){ hops * costs->hop_ns, crossings / costs->bytes_per_ns };
}

static bool takes(const struct ko_run *run)
{
	(void)run;
	return true;
}

static int run_rounds(struct ko_run *run, const void *src, void *dst)
{
	int rc = 0;

	ko_learn_stores(run);
	if (run->desc.coll == KO_ALL_REDUCE || run->desc.coll == KO_ALL_GATHER ||
	    run->desc.coll == KO_BROADCAST)
		ko_offer(run, dst);
	for (size_t k = 0; rc == 0 && k < run->plan.rounds; k++) {
		int64_t since = run->since ? ko_now_ns() : 0;

		rc = ko_rounds[run->desc.coll](run, k, src, dst);
		ko_trace_add(run->comm->trace, KO_TRACE_ROUND, since, k, NULL);
	}
	return rc < 0 ? rc : ko_drain(run);
}

struct ko_model ko_ring_model(const struct ko_plan *p, enum ko_coll coll, int rank,
			      const struct ko_ring *ring, int root)
{
	size_t before = ko_plan_block(p, ko_ring_prev(ring, rank)).n;
	size_t own = ko_plan_block(p, rank).n;
	size_t after = ko_plan_block(p, ko_ring_next(ring, rank)).n;

	switch (coll) {
	case KO_REDUCE_SCATTER: /* sends every block but its own, which it finishes */
		return (struct ko_model){ p->count - own, p->count - before };
	case KO_ALL_GATHER: /* sends every block but next's, which next had first */
		return (struct ko_model){ p->count - after, p->count - own };
	case KO_ALL_REDUCE: /* both */
		return (struct ko_model){ 2 * p->count - own - after, 2 * p->count - own - before };
	case KO_BROADCAST: /* a chain from root to the rank before it */
		return (struct ko_model){ ko_ring_next(ring, rank) == root ? 0 : p->count,
					  rank == root ? 0 : p->count };
	case KO_REDUCE: /* a chain from the rank after root to root */
		return (struct ko_model){ rank == root ? 0 : p->count,
					  ko_ring_prev(ring, rank) == root ? 0 : p->count };
	default: return (struct ko_model){ 0, 0 };
	}
}

static struct ko_model model(const struct ko_run *run)
{
	const struct kolo_comm *c = run->comm;

	return ko_ring_model(&run->plan, (enum ko_coll)run->desc.coll, c->rank, &c->ring,
			     run->desc.root);
}

const struct ko_algorithm_ops ko_ring_ops = {
	.name = "ring",
	.what = "slots from each rank to its next, all the way round",
	.sums = 1 << KO_SUMS_RING,
	.reach = KO_ANYWHERE,
	.end = end,
	.cost = cost,
	.takes = takes,
	.run = run_rounds,
	.model = model,
};
