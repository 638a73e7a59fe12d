/* The algorithm "doubling" (ko_doubling_ops): into groups, between groups, and out of groups. */
#include "comm/coll/doubling.h"

#include "comm/coll/tree.h"
#include "comm/leaders/leaders.h"

enum { MOST = 8 }; /* ranks of a group */

/* An operation under way. */
struct doubling {
	struct ko_leaders l;
	char *sum; /* of what this rank has so far; then the result */
	char *in;  /* what a partner sends */
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

/* ---- Messages -------------------------------------------------------------------------------- */

/* The leader adds up what its group has, by number. */
static void add_group(const struct ko_leaders *l, char *values)
{
	const struct ko_run *run = l->run;
	size_t n = run->plan.count;
	int ranks = ko_leaders_ranks(l, l->group);
	struct ko_tree t;

	if (n == 0 || ranks == 1)
		return;
	t = ko_tree_begin_part(run, ranks, n, NULL, values);
	for (int k = 0; k < ranks; k++)
		ko_tree_add(&t, values + (size_t)k * n * run->size, NULL);
}

/* Adds the partner's sum, which has come. */
static void add_partner(struct doubling *d, bool is_left)
{
	const struct ko_run *run = d->l.run;

	if (run->plan.count == 0)
		return;
	run->red.combine(d->sum, is_left ? d->sum : d->in, is_left ? d->in : d->sum,
			 run->plan.count, &run->red.s);
}

/* Whom this group sends its sum to if root alone needs it, or -1; and from which distance on it
 * gets none (ko_doubling_parent). */
static int parent_of(const struct ko_leaders *l, int *most)
{
	*most = l->ngroups;
	return l->root_group < 0 ? -1
				 : ko_doubling_parent(l->group, l->ngroups, l->root_group, most);
}

/* If root alone needs the sum, it goes to one partner, after those at smaller distances. */
static int between_groups(struct doubling *d)
{
	struct ko_leaders *l = &d->l;
	int most, parent = parent_of(l, &most), rc = 0;
	size_t n = l->run->plan.count;

	for (int half = 1; rc == 0 && half < most; half *= 2) {
		struct ko_partners p = ko_doubling_partners(l->group, l->ngroups, half);

		if (p.from < 0)
			continue;
		for (int k = 0; l->root_group < 0 && k < p.n; k++)
			ko_leaders_add(l, ko_leaders_leader(l, p.to + k * p.step), true, d->sum, n);
		ko_leaders_add(l, ko_leaders_leader(l, p.from), false, d->in, n);
		rc = ko_leaders_do(l);
		if (rc == 0)
			add_partner(d, p.is_left);
	}
	if (rc < 0 || parent < 0)
		return rc;
	ko_leaders_add(l, ko_leaders_leader(l, parent), true, d->sum, n);
	return ko_leaders_do(l);
}

/* Each rank's block of the leader's sum goes to it. */
static int scatter(struct doubling *d, void *dst)
{
	struct ko_leaders *l = &d->l;
	const struct ko_run *run = l->run;
	struct ko_piece own = ko_plan_block(&run->plan, run->comm->rank);
	bool leads = ko_leaders_leads(l);

	for (int k = 1; leads && k < ko_leaders_ranks(l, l->group); k++) {
		struct ko_piece q = ko_plan_block(&run->plan, ko_leaders_rank(l, l->group, k));

		if (q.n)
			ko_leaders_add(l, ko_leaders_rank(l, l->group, k), true,
				       d->sum + q.first * run->size, q.n);
	}
	if (!leads && own.n)
		ko_leaders_add(l, ko_leaders_leader(l, l->group), false, dst, own.n);
	if (leads && own.n)
		run->copy(dst, d->sum + own.first * run->size, own.n, &run->red.s);
	return ko_leaders_do(l);
}

static int hand_out(struct doubling *d, void *dst)
{
	struct ko_leaders *l = &d->l;
	const struct ko_run *run = l->run;
	bool takes =
		ko_leaders_leads(l) && (l->root_group < 0 || run->comm->rank == run->desc.root);

	if (run->desc.coll == KO_REDUCE_SCATTER)
		return scatter(d, dst);
	if (takes && run->plan.count)
		run->copy(dst, d->sum, run->plan.count, &run->red.s);
	return l->root_group < 0 ? ko_leaders_hand_out(l, dst, run->plan.count) : 0;
}

static int doubling(struct ko_run *run, const void *src, void *dst)
{
	const struct kolo_comm *c = run->comm;
	size_t n = run->plan.count;
	struct doubling d = { .l = ko_leaders_make(run, NULL, (int)c->agreed.costs.group),
			      .sum = c->scratch };
	char *own = d.sum + (size_t)d.l.me * n * run->size;
	int rc;

	if (n == 0 && run->desc.coll != KO_BARRIER)
		return 0;
	d.in = d.sum + (size_t)d.l.size * n * run->size;
	if ((rc = ko_leaders_begin(&d.l)) < 0)
		return rc;
	if (n)
		(run->red.scales ? run->red.first : run->copy)(own, src, n, &run->red.s);
	rc = ko_leaders_collect(&d.l, own, d.sum, n);
	if (rc == 0 && ko_leaders_leads(&d.l)) {
		add_group(&d.l, d.sum);
		rc = between_groups(&d);
		if (rc == 0 && n)
			run->red.finish(d.sum, d.sum, n, &run->red.s);
	}
	return rc == 0 ? hand_out(&d, dst) : rc;
}

/* What a rank other than its leader gets of the result. */
static size_t handed(const struct ko_run *run, int rank)
{
	if (run->desc.coll == KO_REDUCE_SCATTER)
		return ko_plan_block(&run->plan, rank).n;
	return run->desc.coll == KO_REDUCE ? 0 : run->plan.count;
}

static struct ko_model model(const struct ko_run *run)
{
	struct ko_leaders l = ko_leaders_make(run, NULL, (int)run->comm->agreed.costs.group);
	int most, parent = parent_of(&l, &most);
	size_t n = run->plan.count;
	struct ko_model m = { parent >= 0 ? n : 0, 0 };

	if (!ko_leaders_leads(&l))
		return (struct ko_model){ n, handed(run, run->comm->rank) };
	for (int k = 0; k < ko_leaders_ranks(&l, l.group); k++)
		if (k != l.me) {
			m.received += n;
			m.sent += handed(run, ko_leaders_rank(&l, l.group, k));
		}
	for (int half = 1; half < most; half *= 2) {
		struct ko_partners p = ko_doubling_partners(l.group, l.ngroups, half);

		m.sent += l.root_group < 0 ? (size_t)p.n * n : 0;
		m.received += p.from >= 0 ? n : 0;
	}
	return m;
}

/* ---- When ------------------------------------------------------------------------------------ */

/* Steps between groups, and into and out of a group. */
static int count_steps(const struct ko_costs *costs, int nranks)
{
	int steps = costs->group > 1 ? 2 : 0;

	for (int half = 1; half < (nranks - 1) / (int)costs->group + 1; half *= 2)
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
