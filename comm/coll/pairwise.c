/* The algorithm "pairwise" (ko_pairwise_ops): rounds of messages. In round k the parts of slice k
 * of all blocks travel, and the sums of slice k - 1. */
#include "comm/coll/pairwise.h"

#include "comm/coll/tree.h"
#include "comm/p2p/transfer.h"

/* An operation under way. */
struct pairwise {
	struct ko_run *run;
	struct ko_run part; /* of messages, for the lanes */
	const char *src;
	char *dst;
	struct ko_plan plan; /* its blocks, in slices of which every rank's fit into scratch */
	/* In scratch: every rank's slice of this rank's block, by rank; the sum, if it has no place
	 * in dst; and what this rank has scaled for each of the others */
	char *values, *sum, *scaled;
	bool scales; /* what is sent is scaled: the factors of others are not known */
	struct ko_transfer *all;
	size_t count;
};

static enum ko_coll coll_of(const struct pairwise *p)
{
	return (enum ko_coll)p->run->desc.coll;
}

static struct ko_piece piece(const struct pairwise *p, int block, size_t round)
{
	return ko_plan_piece(&p->plan, block, round);
}

/* ---- Beginning ------------------------------------------------------------------------------- */

static void cut(struct pairwise *p)
{
	size_t nranks = (size_t)p->run->comm->nranks,
	       slices = nranks + 1 + (p->scales ? nranks : 0);
	size_t most = KO_SCRATCH / slices / p->run->size;
	char *scratch = p->run->comm->scratch;

	p->plan = ko_plan_in_blocks(&p->run->plan, coll_of(p), p->run->comm->nranks);
	p->plan.slice = ko_min_size(p->plan.block, most);
	p->plan.rounds = p->plan.block ? (p->plan.block - 1) / p->plan.slice + 1 : 0;
	p->values = scratch;
	p->sum = p->values + nranks * p->plan.slice * p->run->size;
	p->scaled = p->sum + p->plan.slice * p->run->size;
}

static int begin(struct pairwise *p, struct ko_run *run, const void *src, void *dst)
{
	*p = (struct pairwise){ .run = run,
				.src = src,
				.dst = dst,
				.part = ko_transfers_run(run),
				.scales = run->desc.op == KO_DESC_PREMUL };
	cut(p);
	p->all = ko_transfers_room(run->comm, 4 * (size_t)run->comm->nranks);
	return p->all ? 0
		      : ko_fail(KOLO_ENOMEM, "rank %d: no memory for %d transfers", run->comm->rank,
				4 * run->comm->nranks);
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* Does `rank` need this rank's sums, besides this rank? */
static bool gets_sums(const struct pairwise *p, int rank)
{
	return coll_of(p) == KO_ALL_REDUCE ||
	       (coll_of(p) == KO_REDUCE && rank == p->run->desc.root);
}

static void add_transfer(struct pairwise *p, int peer, bool sends, const void *buffer, size_t n)
{
	if (n)
		p->all[p->count++] = ko_transfers_part(p->run, peer, sends, buffer, n);
}

static char *slice_of(const struct pairwise *p, char *slices, int rank)
{
	return slices + (size_t)rank * p->plan.slice * p->run->size;
}

/* The others' blocks go to their owners, and this rank's comes from all. */
static void add_parts(struct pairwise *p, size_t round)
{
	const struct ko_run *run = p->run;
	int rank = run->comm->rank, nranks = run->comm->nranks;
	struct ko_piece own = piece(p, rank, round);

	for (int k = 1; k < nranks; k++) {
		int to = (rank + k) % nranks, from = (rank + nranks - k) % nranks;
		struct ko_piece q = piece(p, to, round);
		const void *values = ko_at(run, p->src, q.first);

		if (p->scales && q.n) {
			run->red.first(slice_of(p, p->scaled, to), values, q.n, &run->red.s);
			values = slice_of(p, p->scaled, to);
		}
		add_transfer(p, to, true, values, q.n);
		add_transfer(p, from, false, slice_of(p, p->values, from), own.n);
	}
}

/* Where this rank's sum of a round goes. */
static char *place_of_sum(const struct pairwise *p, struct ko_piece own)
{
	size_t before = coll_of(p) == KO_REDUCE_SCATTER
				? ko_plan_block(&p->plan, p->run->comm->rank).first
				: 0;

	if (coll_of(p) == KO_REDUCE && p->run->comm->rank != p->run->desc.root)
		return p->sum;
	return ko_at_mut(p->run, p->dst, own.first - before);
}

static void add_sums(struct pairwise *p, size_t round)
{
	int rank = p->run->comm->rank, nranks = p->run->comm->nranks;
	struct ko_piece own = piece(p, rank, round);

	for (int k = 1; k < nranks; k++) {
		int to = (rank + k) % nranks, from = (rank + nranks - k) % nranks;
		struct ko_piece q = piece(p, from, round);

		if (gets_sums(p, to))
			add_transfer(p, to, true, place_of_sum(p, own), own.n);
		if (gets_sums(p, rank))
			add_transfer(p, from, false, ko_at_mut(p->run, p->dst, q.first), q.n);
	}
}

/* ---- Adding ---------------------------------------------------------------------------------- */

/* Before the messages: dst may be src, and be overwritten by them. */
static void take_own(const struct pairwise *p, size_t round)
{
	const struct ko_run *run = p->run;
	struct ko_piece own = piece(p, run->comm->rank, round);
	char *to = slice_of(p, p->values, run->comm->rank);

	if (own.n)
		(p->scales ? run->red.first : run->copy)(to, ko_at(run, p->src, own.first), own.n,
							 &run->red.s);
}

static void add_up(const struct pairwise *p, size_t round)
{
	struct ko_piece own = piece(p, p->run->comm->rank, round);
	const struct ko_vectors values = { .first = p->values,
					   .stride = p->plan.slice * p->run->size,
					   .scalar = &p->run->red.s };
	struct ko_run run = *p->run;

	run.red.scales = run.red.scales && !p->scales;
	ko_tree_add_in_place(&run, &values, own.n, own.n ? place_of_sum(p, own) : NULL);
}

static int pairwise(struct ko_run *run, const void *src, void *dst)
{
	struct pairwise p;
	int rc = begin(&p, run, src, dst);

	for (size_t k = 0; rc == 0 && k <= p.plan.rounds; k++) {
		p.count = 0;
		if (k > 0)
			add_sums(&p, k - 1);
		if (k < p.plan.rounds) {
			take_own(&p, k);
			add_parts(&p, k);
		}
		rc = ko_transfers_do(&p.part, p.all, p.count);
		if (rc == 0 && k < p.plan.rounds)
			add_up(&p, k);
	}
	return rc;
}

static struct ko_model model(const struct ko_run *run)
{
	struct ko_plan plan =
		ko_plan_in_blocks(&run->plan, (enum ko_coll)run->desc.coll, run->comm->nranks);
	size_t others = (size_t)run->comm->nranks - 1;
	size_t own = ko_plan_block(&plan, run->comm->rank).n, rest = plan.count - own;
	struct ko_model m = { rest, others * own };
	bool root = run->comm->rank == run->desc.root;

	if (run->desc.coll == KO_ALL_REDUCE || (run->desc.coll == KO_REDUCE && root))
		m.received += rest;
	if (run->desc.coll == KO_ALL_REDUCE)
		m.sent += others * own;
	else if (run->desc.coll == KO_REDUCE && !root)
		m.sent += own;
	return m;
}

/* ---- When ------------------------------------------------------------------------------------ */

static uint64_t end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows)
{
	(void)costs, (void)nranks, (void)windows;
	return ko_coll_reduces(coll) ? UINT64_MAX : 0;
}

/* A message takes about a hop, and the next one half of that. If ranks share processors, all of
 * them look for what has come on all of their lanes, and each message was as long as three hops.
 * Bytes are written and read as often as round the ring. */
static struct ko_estimate cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
			       bool windows)
{
	double n = nranks, phases = coll == KO_REDUCE_SCATTER ? 1 : 2;
	double messages = costs->share > 1 ? 3 * (n - 1) : n / 2;

	(void)windows;
	return (struct ko_estimate){ phases * costs->hop_ns * messages,
				     phases * 2 * (n - 1) / n / costs->bytes_per_ns };
}

static bool takes(const struct ko_run *run)
{
	(void)run;
	return true;
}

const struct ko_algorithm_ops ko_pairwise_ops = {
	.name = "pairwise",
	.what = "each block to its owner in messages, which adds it up and sends the sum",
	.sums = 1 << KO_SUMS_TREE,
	.reach = KO_ANYWHERE,
	.end = end,
	.cost = cost,
	.takes = takes,
	.run = pairwise,
	.model = model,
};
