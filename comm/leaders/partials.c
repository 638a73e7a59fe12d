/* The algorithms "partials" (ko_partials_ops), "center" (ko_center_ops) and "shares"
 * (ko_shares_ops): into groups, between leaders, and out of groups. */
#include "comm/leaders/partials.h"

#include "comm/leaders/gather.h"
#include "comm/leaders/shares.h"
#include "comm/leaders/trees.h"
#include "comm/leaders/when.h"

/* ---- Into and out of the group --------------------------------------------------------------- */

static void place_entries(const struct ko_led *p, char *entries, void *dst)
{
	for (int k = 0; k < p->l.ngroups; k++)
		ko_led_place(p, ko_shape_wrap(p->l.group + k, p->l.ngroups),
			     ko_led_at(p, entries, ko_led_entry(p, k)), dst);
}

/* The leader has the sums of all groups, or of all elements. */
static void place_sums(const struct ko_led *p, void *dst)
{
	if (p->shares)
		place_entries(p, p->values, dst);
	for (int k = 0; !p->shares && k < p->l.ngroups; k++) {
		char *to = p->firsts ? NULL : ko_at_mut(p->run, dst, ko_led_first(p, k));

		to = ko_led_add_sums(p, k, to);
		if (p->firsts)
			ko_led_place(p, k, to, dst);
	}
}

/* Elements of the result of a rank of this group. */
static size_t count_of_result(const struct ko_led *p, int number)
{
	return ko_led_coll(p) == KO_ALL_TO_ALL ? p->plan.count
					       : ko_led_block(p, p->l.group, number).n;
}

/* Each rank of the group gets its result from the leader, which has them by number. */
static int scatter(struct ko_led *p, const char *results, void *dst)
{
	struct ko_leaders *l = &p->l;
	bool leads = ko_leaders_leads(l);
	size_t n = count_of_result(p, l->me);

	if (!leads && n)
		ko_leaders_add(l, ko_leaders_leader(l, l->group), false, dst, n);
	for (int i = 0; leads && i < l->size; i++) {
		n = count_of_result(p, i);
		if (n && i == l->me)
			p->run->copy(dst, results, n, &p->run->red.s);
		else if (n)
			ko_leaders_add(l, ko_leaders_rank(l, l->group, i), true, results, n);
		results += n * p->run->size;
	}
	return ko_leaders_do(l);
}

/* ---- The collectives ------------------------------------------------------------------------- */

/* One leader has the result, and sends it to the others. As nobody is root, it is that of the last
 * group. */
static int reduce_at_center(struct ko_led *p, void *dst)
{
	int rc;

	ko_led_add_group(p);
	rc = ko_led_gather(p, p->sums);
	if (rc == 0 && ko_led_after_root(p) == 0)
		place_sums(p, dst);
	return rc < 0 ? rc : ko_led_spread(p, dst);
}

/* The leader of a reduction that shares out sums. Afterwards the entries of all groups are in
 * `values`, if it needs them. *own: the sum of its group's elements, for a reduce-scatter. */
static int reduce_shares(struct ko_led *p, char **own)
{
	int rc = ko_led_share_out(p);

	if (rc < 0)
		return rc;
	*own = ko_led_add_sums(p, p->l.group, p->values);
	if (ko_led_coll(p) == KO_REDUCE)
		return ko_led_gather(p, p->values);
	return ko_led_coll(p) == KO_ALL_REDUCE ? ko_led_gather_all(p, p->values) : 0;
}

/* The same, with whole sums; afterwards they are in `sums`. */
static int reduce_whole(struct ko_led *p, void *dst, char **own)
{
	bool to_root = ko_led_coll(p) == KO_REDUCE;
	int rc;

	ko_led_add_group(p);
	if (to_root && ko_led_after_root(p) == 0)
		return ko_led_add_as_they_come(p, dst);
	rc = (to_root ? ko_led_gather : ko_led_gather_all)(p, p->sums);
	if (rc == 0 && ko_led_coll(p) == KO_REDUCE_SCATTER)
		*own = ko_led_add_sums(p, p->l.group, NULL);
	return rc;
}

static int reduce_between(struct ko_led *p, void *dst, char **own)
{
	if (p->kind == KO_LED_CENTER)
		return reduce_at_center(p, dst);
	return p->kind == KO_LED_SHARES ? reduce_shares(p, own) : reduce_whole(p, dst, own);
}

static int reduction(struct ko_led *p, const void *src, void *dst)
{
	const struct ko_run *run = p->run;
	bool leads = ko_leaders_leads(&p->l), to_root = ko_led_coll(p) == KO_REDUCE;
	char *own = NULL;
	int rc;

	p->own = src;
	rc = ko_leaders_collect(&p->l, src, p->values, p->plan.count);
	if (rc == 0 && leads)
		rc = reduce_between(p, dst, &own);
	if (rc < 0)
		return rc;
	if (ko_led_coll(p) == KO_REDUCE_SCATTER)
		return scatter(p, own, dst);
	if (to_root ? p->shares && run->comm->rank == run->desc.root
		    : leads && p->kind != KO_LED_CENTER)
		place_sums(p, dst);
	return to_root ? 0 : ko_leaders_hand_out(&p->l, dst, p->plan.count);
}

static int all_gather(struct ko_led *p, const void *src, void *dst)
{
	char *entries = p->in_place ? dst : p->values;
	char *own = p->in_place ? ko_at_mut(p->run, dst, ko_led_first(p, p->l.group)) : p->values;
	bool leads = ko_leaders_leads(&p->l);
	size_t n = p->plan.block;
	int rc;

	if (leads && own != src) /* it leads: its number is 0 */
		p->run->copy(own, src, n, &p->run->red.s);
	rc = ko_leaders_collect(&p->l, src, own, n);
	if (rc == 0 && leads)
		rc = ko_led_gather_all(p, entries);
	if (rc < 0)
		return rc;
	if (p->in_place)
		return leads ? 0 : ko_led_get_all(p, dst);
	if (leads)
		place_entries(p, entries, dst);
	return ko_leaders_hand_out(&p->l, dst, p->plan.count);
}

static int broadcast(struct ko_led *p, const void *src, void *dst)
{
	const struct ko_run *run = p->run;
	int rc = 0;

	if (run->comm->rank == run->desc.root && dst != src)
		ko_run_copy(run, dst, src, p->plan.count * run->size);
	if (ko_leaders_leads(&p->l))
		rc = ko_led_spread(p, dst);
	return rc < 0 ? rc : ko_leaders_hand_out(&p->l, dst, p->plan.count);
}

/* What the group's ranks have for those of another one is a share, by receiver and then by sender.
 * Copies it from the ranks' vectors, or, when share k has come, to them. */
static void copy_share(const struct ko_led *p, int k, bool has_come)
{
	const struct ko_leaders *l = &p->l;
	char *at = p->at[k];

	for (int to = 0; to < l->size; to++)
		for (int from = 0; from < l->size; from++) {
			struct ko_piece q = has_come ? ko_led_block(p, l->group - k, from)
						     : ko_led_block(p, l->group + k, to);
			size_t vector = (size_t)(has_come ? to : from) * p->plan.count;
			char *block = ko_led_at(p, p->values, vector + q.first);

			p->run->copy(has_come ? block : at, has_come ? at : block, q.n,
				     &p->run->red.s);
			at += q.n * p->run->size;
		}
}

static int all_to_all(struct ko_led *p, const void *src, void *dst)
{
	bool leads = ko_leaders_leads(&p->l);
	int rc;

	if (leads)
		p->run->copy(p->values, src, p->plan.count, &p->run->red.s); /* its number is 0 */
	rc = ko_leaders_collect(&p->l, src, p->values, p->plan.count);
	for (int k = 0; rc == 0 && leads && k < p->l.ngroups; k++) {
		p->at[k] = ko_led_at(p, p->sums, (size_t)k * p->shares);
		copy_share(p, k, false);
	}
	if (rc == 0 && leads)
		rc = ko_led_exchange_shares(p);
	for (int k = 0; rc == 0 && leads && k < p->l.ngroups; k++)
		copy_share(p, k, true);
	return rc < 0 ? rc : scatter(p, p->values, dst);
}

static int begin(struct ko_run *run, enum ko_led_kind kind, const void *src, void *dst)
{
	struct ko_led p = ko_led_describe(run, kind);
	int rc;

	if (p.plan.count == 0)
		return 0;
	p.add = ko_reducer_of_sums(run->red, (enum kolo_type)run->desc.type).combine;
	rc = ko_leaders_begin(&p.l);
	if (rc < 0)
		return rc;
	if (run->desc.coll == KO_ALL_GATHER)
		return all_gather(&p, src, dst);
	if (run->desc.coll == KO_BROADCAST)
		return broadcast(&p, src, dst);
	if (run->desc.coll == KO_ALL_TO_ALL)
		return all_to_all(&p, src, dst);
	return reduction(&p, src, dst);
}

static int partials(struct ko_run *run, const void *src, void *dst)
{
	return begin(run, KO_LED_PARTIALS, src, dst);
}

static int center(struct ko_run *run, const void *src, void *dst)
{
	return begin(run, KO_LED_CENTER, src, dst);
}

static int shares(struct ko_run *run, const void *src, void *dst)
{
	return begin(run, KO_LED_SHARES, src, dst);
}

/* ---- Formulas -------------------------------------------------------------------------------- */

/* What leaders send each other. */
static void count_between(struct ko_led *p, struct ko_model *m)
{
	if (p->shares)
		ko_led_count_shares(p, m);
	if (ko_led_coll(p) == KO_BROADCAST) {
		ko_led_count_spread(p, m);
	} else if (p->kind == KO_LED_CENTER) {
		ko_led_count_gather(p, m);
		ko_led_count_spread(p, m);
	} else if (ko_led_coll(p) == KO_REDUCE) {
		ko_led_count_gather(p, m);
	} else if (ko_led_coll(p) != KO_ALL_TO_ALL &&
		   (!p->shares || ko_led_coll(p) != KO_REDUCE_SCATTER)) {
		ko_led_count_gather_all(p, m);
	}
}

/* What a rank gives its leader, and what it gets. */
static struct ko_model member(const struct ko_led *p, int number)
{
	size_t count = p->plan.count;

	switch (ko_led_coll(p)) {
	case KO_REDUCE_SCATTER:
		return (struct ko_model){ count, ko_led_block(p, p->l.group, number).n };
	case KO_ALL_GATHER: return (struct ko_model){ p->plan.block, count };
	case KO_BROADCAST: return (struct ko_model){ 0, count };
	case KO_REDUCE: return (struct ko_model){ count, 0 };
	default: return (struct ko_model){ count, count };
	}
}

static struct ko_model count(const struct ko_run *run, enum ko_led_kind kind)
{
	struct ko_run copy = *run;
	struct ko_led p = ko_led_describe(&copy, kind);
	struct ko_model m = { 0 };

	if (!ko_leaders_leads(&p.l))
		return member(&p, p.l.me);
	for (int i = 0; i < p.l.size; i++)
		if (i != p.l.me) {
			m.received += member(&p, i).sent;
			m.sent += member(&p, i).received;
		}
	count_between(&p, &m);
	return m;
}

static struct ko_model partials_model(const struct ko_run *run)
{
	return count(run, KO_LED_PARTIALS);
}

static struct ko_model center_model(const struct ko_run *run)
{
	return count(run, KO_LED_CENTER);
}

static struct ko_model shares_model(const struct ko_run *run)
{
	return count(run, KO_LED_SHARES);
}

/* ---- Rows of the table ----------------------------------------------------------------------- */

/* No factors are sent, parts of an all-gather may be uneven, and the room beside the vectors
 * is for elements of Kolo's types. */
static bool partials_takes(const struct ko_run *run)
{
	return run->desc.op != KO_DESC_PREMUL && run->size <= KO_MAX_SIZE &&
	       (run->desc.coll != KO_ALL_GATHER || !(run->desc.how & KO_UNEVEN));
}

/* One group's elements may be all of an uneven vector. Of a vector shorter than the ranks are many,
 * the rounded parts may need more than there is. */
static bool shares_takes(const struct ko_run *run)
{
	return run->desc.op != KO_DESC_PREMUL && run->size <= KO_MAX_SIZE &&
	       !(run->desc.how & KO_UNEVEN) &&
	       ko_led_memory_for_shares(run) <= ko_led_memory(run->comm);
}

const struct ko_algorithm_ops ko_partials_ops = {
	.name = "partials",
	.what = "ranks of a group add up, and one of each group exchanges these sums",
	.sums = 1 << KO_SUMS_GRID,
	.reach = KO_ANYWHERE,
	.end = ko_partials_end,
	.cost = ko_partials_cost,
	.takes = partials_takes,
	.run = partials,
	.model = partials_model,
};

const struct ko_algorithm_ops ko_center_ops = {
	.name = "center",
	.what = "as partials, but one rank adds up all sums, and the result comes from there",
	.sums = 1 << KO_SUMS_GRID,
	.reach = KO_ANYWHERE,
	.end = ko_center_end,
	.cost = ko_center_cost,
	.takes = partials_takes,
	.run = center,
	.model = center_model,
};

const struct ko_algorithm_ops ko_shares_ops = {
	.name = "shares",
	.what = "as partials, but a group gets only what is for its own elements, and passes on sums",
	.sums = 1 << KO_SUMS_GRID,
	.reach = KO_ANYWHERE,
	.end = ko_shares_end,
	.cost = ko_shares_cost,
	.takes = shares_takes,
	.run = shares,
	.model = shares_model,
};
