#include "comm/leaders/led.h"

#include "comm/rings/rails.h"

enum { IN_PLACE = 16 << 10 }; /* bytes of a vector from which on its parts come to their places */

/* ---- Where elements are ---------------------------------------------------------------------- */

/* What the grid's rounds need, and this does not at the same time, if that is more. */
static bool uses_rails(const struct kolo_comm *c)
{
	return c->rails && c->rails->memory > KO_SCRATCH;
}

size_t ko_led_memory(const struct kolo_comm *c)
{
	return uses_rails(c) ? c->rails->memory : KO_SCRATCH;
}

struct ko_piece ko_led_block(const struct ko_led *p, int group, int number)
{
	return ko_plan_block(&p->plan, ko_leaders_rank(&p->l, group, number));
}

size_t ko_led_first(const struct ko_led *p, int group)
{
	if (p->firsts)
		return p->firsts[group];
	return group == p->l.ngroups ? p->plan.count
				     : ko_plan_block(&p->plan, group * p->l.size).first;
}

size_t ko_led_count(const struct ko_led *p, int group)
{
	if (ko_led_coll(p) == KO_ALL_TO_ALL)
		return p->shares;
	group = ko_shape_wrap(group, p->l.ngroups);
	return ko_led_first(p, group + 1) - ko_led_first(p, group);
}

int ko_led_after_root(const struct ko_led *p)
{
	return ko_shape_wrap(p->l.group - p->l.root_group, p->l.ngroups);
}

static bool is_in_order(const struct ko_shape *s)
{
	for (int k = 0; k < s->ngroups * s->size; k++)
		if (s->ranks[k] != k)
			return false;
	return true;
}

static void find_firsts(struct ko_led *p, size_t *firsts)
{
	size_t at = 0;

	for (int k = 0; k < p->l.ngroups; k++) {
		firsts[k] = at;
		for (int i = 0; i < p->l.size; i++)
			at += ko_led_block(p, k, i).n;
	}
	firsts[p->l.ngroups] = at;
	p->firsts = firsts;
}

size_t ko_led_entry(const struct ko_led *p, int k)
{
	int group = p->l.group + k;
	size_t first = ko_led_first(p, p->l.group);

	if (!p->shares && ko_led_coll(p) != KO_ALL_GATHER)
		return (size_t)k * p->plan.count;
	if (group < p->l.ngroups)
		return ko_led_first(p, group) - first;
	return p->plan.count - first + ko_led_first(p, group - p->l.ngroups);
}

struct ko_led ko_led_describe(struct ko_run *run, enum ko_led_kind kind)
{
	struct kolo_comm *c = run->comm;
	struct ko_led p = { .run = run,
			    .l = ko_leaders_make(run, &c->shape, 0),
			    .kind = kind,
			    .radix = KO_LED_RADIX };
	size_t bytes = run->plan.count * run->size;
	char *at = uses_rails(c) ? c->rails->sums : c->scratch;

	p.plan = ko_plan_in_blocks(&run->plan, ko_led_coll(&p), c->nranks);
	if (!is_in_order(&c->shape)) {
		find_firsts(&p, (size_t *)(void *)at);
		at += ((size_t)p.l.ngroups + 1) * sizeof(size_t);
	}
	if (kind == KO_LED_SHARES) {
		p.at = (char **)(void *)at;
		at += (size_t)p.l.ngroups * sizeof(*p.at);
	}
	p.sum = p.sums = p.values = p.messages = at;
	if (ko_led_coll(&p) == KO_ALL_TO_ALL) {
		p.shares = (size_t)p.l.size * (size_t)p.l.size * p.plan.block;
		p.sums = at + (size_t)p.l.size * bytes + (size_t)c->nranks * run->size;
	} else if (kind == KO_LED_SHARES) {
		p.shares = (size_t)p.l.size * p.plan.block;
		p.values = p.sum + bytes;
		p.messages = p.values + bytes;
	} else if (ko_led_coll(&p) != KO_ALL_GATHER) {
		p.values = p.sum + bytes;
	}
	p.in_place = ko_led_coll(&p) == KO_ALL_GATHER && !p.firsts && bytes >= IN_PLACE;
	return p;
}

size_t ko_led_memory_for_shares(const struct ko_run *run)
{
	const struct ko_shape *s = &run->comm->shape;
	struct ko_plan plan =
		ko_plan_in_blocks(&run->plan, (enum ko_coll)run->desc.coll, run->comm->nranks);
	size_t n = plan.count, groups = (size_t)s->ngroups, size = (size_t)s->size;
	size_t message = groups / 2 * size * plan.block;
	size_t values = size * n, later = n + (1 + (size_t)ko_log2_up(s->ngroups)) * message;

	return (groups + 1) * sizeof(size_t) + groups * sizeof(char *) +
	       (n + (values > later ? values : later)) * run->size;
}

/* ---- Adding ---------------------------------------------------------------------------------- */

/* The values of a rank of the group, from an element on. */
static const char *values_of(const struct ko_led *p, int number, size_t element)
{
	if (number == p->l.me)
		return ko_at(p->run, p->own, element);
	return ko_led_at(p, p->values, (size_t)number * p->plan.count + element);
}

/* The group's sum of a block, from the number after its owner's round to it. */
static void add_block(const struct ko_led *p, int owner, struct ko_piece q, char *to)
{
	const struct ko_run *run = p->run;
	const char *partial = values_of(p, ko_shape_wrap(owner + 1, p->l.size), q.first);

	if (run->red.first != run->copy || p->l.size == 1) {
		run->red.first(to, partial, q.n, &run->red.s);
		partial = to;
	}
	for (int k = 2; k <= p->l.size; k++) {
		run->red.combine(to, partial,
				 values_of(p, ko_shape_wrap(owner + k, p->l.size), q.first), q.n,
				 &run->red.s);
		partial = to;
	}
}

void ko_led_add_group(const struct ko_led *p)
{
	size_t at = 0;

	for (int k = 0; k < p->l.ngroups; k++)
		for (int i = 0; i < p->l.size; i++) {
			struct ko_piece q = ko_led_block(p, k, i);

			if (q.n)
				add_block(p, i, q, ko_led_at(p, p->sum, at));
			at += q.n;
		}
}

char *ko_led_add_sums(const struct ko_led *p, int group, char *to)
{
	const struct ko_run *run = p->run;
	size_t n = ko_led_count(p, group), first = ko_led_first(p, group);
	int last = ko_led_coll(p) == KO_REDUCE ? p->l.root_group : group;
	const char *partial = NULL;

	for (int k = 1; n && k <= p->l.ngroups; k++) {
		int after = ko_shape_wrap(last + k - p->l.group, p->l.ngroups);
		char *sum = p->shares
				    ? p->at[ko_shape_wrap(-after, p->l.ngroups)]
				    : ko_led_at(p, p->sums, (size_t)after * p->plan.count + first);

		to = to ? to : sum;
		if (k > 1)
			p->add(to, partial, sum, n, &run->red.s);
		partial = k > 1 ? to : sum;
	}
	if (n)
		run->red.finish(to, to, n, &run->red.s);
	return to;
}

/* ---- In the result --------------------------------------------------------------------------- */

void ko_led_place(const struct ko_led *p, int group, const char *elements, void *dst)
{
	const struct ko_run *run = p->run;

	if (!p->firsts) {
		ko_run_copy(run, ko_at_mut(run, dst, ko_led_first(p, group)), elements,
			    ko_led_count(p, group) * run->size);
		return;
	}
	for (int i = 0; i < p->l.size; i++) {
		struct ko_piece q = ko_led_block(p, group, i);

		if (q.n)
			run->copy(ko_at_mut(run, dst, q.first), elements, q.n, &run->red.s);
		elements += q.n * run->size;
	}
}
