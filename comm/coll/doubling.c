/* The algorithm "doubling" (ko_doubling_ops): into groups, between groups, and out of groups. */
#include "comm/coll/doubling.h"

#include "comm/coll/tree.h"
#include "comm/p2p/transfer.h"

enum { MOST = 8 }; /* ranks of a group */

/* An operation under way. */
struct doubling {
	struct ko_run *run;
	struct ko_run part; /* of messages, for the lanes */
	int group, me;      /* this rank's group, its number there; the first one leads */
	int size, ngroups;
	char *sum; /* of what this rank has so far; then the result */
	char *in;  /* what others send */
	struct ko_transfer *all;
	size_t count;
};

/* ---- Arithmetic ------------------------------------------------------------------------------ */

struct ko_partners ko_doubling_partners(int me, int n, int half)
{
	int first = me & ~(2 * half - 1), at = me - first;
	int right = n - first - half < half ? n - first - half : half;
	struct ko_partners p = { .step = 1, .is_left = at < half };

	if (right <= 0)
		return (struct ko_partners){ .from = -1 };
	if (p.is_left) {
		p.from = first + half + at % right;
		p.to = first + half + at;
		p.n = at < right;
	} else {
		at -= half;
		p.from = first + at;
		p.to = first + at;
		p.step = right;
		p.n = (half - at - 1) / right + 1;
	}
	return p;
}

/* From the top down: `at` has the sum of the part in which `me` is, too. */
int ko_doubling_parent(int me, int n, int root, int *half)
{
	int at = root, parent = -1, size = 1;

	while (size < n)
		size *= 2;
	*half = n;
	for (size /= 2; size >= 1; size /= 2)
		if (me / size != at / size) {
			parent = at;
			*half = size;
			at = ko_doubling_partners(at, n, size).from;
		}
	return parent;
}

static bool is_one_host(const struct kolo_comm *c, int size)
{
	for (int r = 0; r < c->nranks; r++)
		if (!ko_place_same(&c->table[r].place, &c->table[r / size * size].place))
			return false;
	return true;
}

int ko_doubling_group(const struct kolo_comm *c)
{
	int size = 1;

	while (size < MOST && size < c->nranks && is_one_host(c, 2 * size))
		size *= 2;
	return size;
}

size_t ko_doubling_room(int group)
{
	return KO_SCRATCH / (size_t)(group + 1);
}

static int number_of_groups(int nranks, int group)
{
	return (nranks - 1) / group + 1;
}

/* Ranks of a group; the last one may be short. */
static int ranks_of(const struct doubling *d, int group)
{
	int rest = d->run->comm->nranks - group * d->size;

	return rest < d->size ? rest : d->size;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void add_transfer(struct doubling *d, int peer, bool sends, char *buffer, size_t n)
{
	d->all[d->count++] = ko_transfers_part(d->run, peer, sends, buffer, n);
}

static int do_transfers(struct doubling *d)
{
	int rc = ko_transfers_do(&d->part, d->all, d->count);

	d->count = 0;
	return rc;
}

/* The first of the group adds up what the others send. */
static int into_group(struct doubling *d)
{
	const struct ko_run *run = d->run;
	size_t n = run->plan.count;
	int members = ranks_of(d, d->group), first = d->group * d->size;
	struct ko_tree t;
	int rc;

	if (d->me > 0) {
		add_transfer(d, first, true, d->sum, n);
		return do_transfers(d);
	}
	for (int k = 1; k < members; k++)
		add_transfer(d, first + k, false, d->sum + (size_t)k * n * run->size, n);
	rc = members > 1 ? do_transfers(d) : 0;
	if (rc < 0 || members == 1 || n == 0)
		return rc;
	t = ko_tree_begin_part(run, members, n, NULL, d->sum);
	for (int k = 0; k < members; k++)
		ko_tree_add(&t, d->sum + (size_t)k * n * run->size, NULL);
	return 0;
}

/* Adds the partner's sum, which has come. */
static void add_partner(struct doubling *d, bool is_left)
{
	const struct ko_run *run = d->run;

	if (run->plan.count == 0)
		return;
	run->red.combine(d->sum, is_left ? d->sum : d->in, is_left ? d->in : d->sum,
			 run->plan.count, &run->red.s);
}

/* If root alone needs the sum, it goes to one partner, after those at smaller distances. */
static int between_groups(struct doubling *d)
{
	const struct ko_run *run = d->run;
	bool to_root = run->desc.coll == KO_REDUCE;
	int most = d->ngroups, rc = 0;
	int parent =
		to_root ? ko_doubling_parent(d->group, d->ngroups, run->desc.root / d->size, &most)
			: -1;
	size_t n = run->plan.count;

	for (int half = 1; rc == 0 && half < most; half *= 2) {
		struct ko_partners p = ko_doubling_partners(d->group, d->ngroups, half);

		if (p.from < 0)
			continue;
		for (int k = 0; !to_root && k < p.n; k++)
			add_transfer(d, (p.to + k * p.step) * d->size, true, d->sum, n);
		add_transfer(d, p.from * d->size, false, d->in, n);
		rc = do_transfers(d);
		if (rc == 0)
			add_partner(d, p.is_left);
	}
	if (rc < 0 || parent < 0)
		return rc;
	add_transfer(d, parent * d->size, true, d->sum, n);
	return do_transfers(d);
}

/* What a rank keeps of the result. */
static struct ko_piece kept(const struct ko_run *run, int rank)
{
	if (run->desc.coll == KO_REDUCE_SCATTER)
		return ko_plan_block(&run->plan, rank);
	if (run->desc.coll == KO_REDUCE && rank != run->desc.root)
		return (struct ko_piece){ 0, 0 };
	return (struct ko_piece){ 0, run->plan.count };
}

static int out_of_group(struct doubling *d, void *dst)
{
	const struct ko_run *run = d->run;
	int first = d->group * d->size;
	struct ko_piece q = kept(run, run->comm->rank);
	bool barrier = run->desc.coll == KO_BARRIER;

	for (int k = 1; d->me == 0 && k < ranks_of(d, d->group); k++) {
		struct ko_piece p = kept(run, first + k);

		if (p.n || barrier)
			add_transfer(d, first + k, true, d->sum + p.first * run->size, p.n);
	}
	if (d->me > 0 && (q.n || barrier))
		add_transfer(d, first, false, dst, q.n);
	if (d->me == 0 && q.n)
		run->copy(dst, d->sum + q.first * run->size, q.n, NULL);
	return d->count ? do_transfers(d) : 0;
}

static int doubling(struct ko_run *run, const void *src, void *dst)
{
	const struct kolo_comm *c = run->comm;
	size_t n = run->plan.count;
	struct doubling d = { .run = run,
			      .part = ko_transfers_run(run),
			      .size = (int)c->agreed.costs.group,
			      .sum = c->scratch };
	int rc;

	if (n == 0 && run->desc.coll != KO_BARRIER)
		return 0;
	d.group = c->rank / d.size;
	d.me = c->rank % d.size;
	d.ngroups = number_of_groups(c->nranks, d.size);
	d.in = d.sum + (size_t)d.size * n * run->size;
	d.all = ko_transfers_room(run->comm, 2 * (size_t)c->nranks);
	if (!d.all)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for %d transfers", c->rank,
			       2 * c->nranks);
	if (n)
		(run->red.scales ? run->red.first : run->copy)(d.sum, src, n, &run->red.s);
	rc = into_group(&d);
	if (rc == 0 && d.me == 0)
		rc = between_groups(&d);
	if (rc == 0 && d.me == 0 && n)
		run->red.finish(d.sum, d.sum, n, &run->red.s);
	return rc == 0 ? out_of_group(&d, dst) : rc;
}

static struct ko_model model(const struct ko_run *run)
{
	const struct kolo_comm *c = run->comm;
	int size = (int)c->agreed.costs.group, group = c->rank / size, me = c->rank % size;
	int ngroups = number_of_groups(c->nranks, size), most = ngroups;
	size_t n = run->plan.count;
	struct ko_model m = { 0 };

	if (me > 0)
		return (struct ko_model){ n, kept(run, c->rank).n };
	for (int r = c->rank + 1; r < c->nranks && r / size == group; r++) {
		m.received += n;
		m.sent += kept(run, r).n;
	}
	if (run->desc.coll == KO_REDUCE &&
	    ko_doubling_parent(group, ngroups, run->desc.root / size, &most) >= 0)
		m.sent += n;
	for (int half = 1; half < most; half *= 2) {
		struct ko_partners p = ko_doubling_partners(group, ngroups, half);

		m.sent += run->desc.coll == KO_REDUCE ? 0 : (size_t)p.n * n;
		m.received += p.from >= 0 ? n : 0;
	}
	return m;
}

/* ---- When ------------------------------------------------------------------------------------ */

/* Steps between groups, and into and out of a group. */
static int count_steps(const struct ko_costs *costs, int nranks)
{
	int steps = costs->group > 1 ? 2 : 0;

	for (int half = 1; half < number_of_groups(nranks, (int)costs->group); half *= 2)
		steps++;
	return steps;
}

/* A barrier, if it needs fewer steps than round the ring. */
static uint64_t end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows)
{
	(void)windows;
	if (coll == KO_BARRIER)
		return count_steps(costs, nranks) < nranks - 1;
	return ko_coll_reduces(coll) ? costs->group_room + 1 : 0;
}

/* A message of the group's others takes about a quarter of a hop, since they come together. */
static struct ko_estimate cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
			       bool windows)
{
	double others = (double)costs->group - 1, steps = count_steps(costs, nranks);

	(void)coll, (void)windows;
	return (struct ko_estimate){ (steps + others / 4) * costs->hop_ns,
				     2 * (others + steps) / costs->bytes_per_ns };
}

static bool takes(const struct ko_run *run)
{
	(void)run;
	return true;
}

const struct ko_algorithm_ops ko_doubling_ops = {
	.name = "doubling",
	.what = "ranks of a host add up, then hosts exchange sums at distances 1, 2, 4, ..",
	.sums = 1 << KO_SUMS_TREE,
	.reach = KO_NETWORK,
	.end = end,
	.cost = cost,
	.takes = takes,
	.run = doubling,
	.model = model,
};
