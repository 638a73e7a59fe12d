#include "comm/leaders/trees.h"

#include "comm/leaders/gather.h"

enum { AHEAD = 60 << 10 }; /* bytes that TCP takes in before they are read, as systems are set */

/* ---- What a tree costs ----------------------------------------------------------------------- */

double ko_hops_of(double n)
{
	return n > 0 ? 1 + (n - 1) / 4 : 0;
}

double ko_in_a_row(const struct ko_costs *costs, double n)
{
	return costs->by_processors && n > 1 ? (1 + n) / 2 : n;
}

double ko_lone_ns(const struct ko_costs *costs, double bytes)
{
	return 2 * bytes / costs->lone_bytes_per_ns;
}

struct ko_led_tree ko_led_tree_of(const struct ko_costs *costs)
{
	struct ko_led_tree t = { 0 };

	for (int64_t n = costs->groups; n > 1; n = (n - 1) / KO_LED_RADIX + 1) {
		double others = (double)(n < KO_LED_RADIX ? n : KO_LED_RADIX) - 1;

		t.hops += ko_hops_of(others);
		t.vectors += ko_in_a_row(costs, others);
	}
	return t;
}

/* Bytes from which on a vector is faster in a binomial tree: one that does not fit into the
 * connection waits for each of the receivers by itself. */
static double wide_end(const struct ko_costs *costs)
{
	struct ko_led_tree t = ko_led_tree_of(costs);
	double levels = ko_log2_up(costs->groups), hops = levels - t.hops;
	double more = ko_lone_ns(costs, t.vectors) - 2 * levels / costs->bytes_per_ns;

	if (hops < 0)
		return 0;
	return more * AHEAD > hops * costs->rail_hop_ns ? hops * costs->rail_hop_ns / more : AHEAD;
}

/* ---- To root's leader and from it ------------------------------------------------------------ */

/* In a tree in which each leader gets the entries of up to radix - 1 others on each level. Those of
 * a level are `far` groups apart, then radix times as far. Returns how far apart those are among
 * which this one sends; root's: at least all groups. */
static int level_of(const struct ko_led *p)
{
	int far = 1;

	while (far < p->l.ngroups && ko_led_after_root(p) / far % p->radix == 0)
		far *= p->radix;
	return far;
}

/* The group whose leader is the next one on the way to root's. */
static int next_to_root(const struct ko_led *p)
{
	int level = level_of(p);

	return p->l.group - ko_led_after_root(p) / level % p->radix * level;
}

/* Entries of this group and of those whose sums come by way of it. */
static int count_gathered(const struct ko_led *p)
{
	int rest = p->l.ngroups - ko_led_after_root(p), level = level_of(p);

	return level < rest ? level : rest;
}

/* The end of the entries that come in one message with entry `first`. */
static int end_of_message(const struct ko_led *p, int first)
{
	int far = 1, n = p->l.ngroups;

	while (far <= first / p->radix)
		far *= p->radix;
	return first + far < n ? first + far : n;
}

int ko_led_gather(struct ko_led *p, char *entries)
{
	int has = count_gathered(p), from = 1, rc = 0;

	for (int k = 1, end; rc == 0 && k < has; k = end) {
		end = end_of_message(p, k) < has ? end_of_message(p, k) : has;
		ko_led_add_entries(p, ko_leaders_leader(&p->l, p->l.group + k), false, entries, k,
				   end);
		if ((ko_led_entry(p, end) - ko_led_entry(p, from)) * p->run->size <=
		    KO_LED_TOGETHER)
			continue;
		rc = ko_leaders_do(&p->l);
		from = end;
	}
	if (rc == 0)
		rc = ko_leaders_do(&p->l);
	if (rc < 0 || ko_led_after_root(p) == 0)
		return rc;
	ko_led_add_entries(p, ko_leaders_leader(&p->l, next_to_root(p)), true, entries, 0, has);
	return ko_leaders_do(&p->l);
}

/* Gets the next sums, from entry `first` on: 1 to `to`, the others to `in`. Returns the end
 * of them, or an error. */
static int get_sums(struct ko_led *p, int first, char *to, char *in)
{
	size_t n = p->plan.count, got = 0;
	int end = first, rc;

	do {
		int next = end_of_message(p, end),
		    leader = ko_leaders_leader(&p->l, p->l.group + end);
		size_t more = (size_t)(next - end) * n;

		ko_leaders_add(&p->l, leader, false, end == 1 ? to : ko_led_at(p, in, got), more);
		got += end == 1 ? 0 : more;
		end = next;
	} while (end < p->l.ngroups &&
		 (got + (size_t)(end_of_message(p, end) - end) * n) * p->run->size <=
			 KO_LED_TOGETHER);
	rc = ko_leaders_do(&p->l);
	return rc < 0 ? rc : end;
}

int ko_led_add_as_they_come(struct ko_led *p, void *dst)
{
	const struct ko_run *run = p->run;
	size_t n = p->plan.count;
	char *to = p->firsts ? ko_led_at(p, p->sum, n) : dst;
	char *in = ko_led_at(p, p->sum, p->firsts ? 2 * n : n);
	int end;

	for (int k = 1; k < p->l.ngroups; k = end) {
		int first = k > 1 ? k : 2; /* in `in` */

		end = get_sums(p, k, to, in);
		if (end < 0)
			return end;
		for (int e = first; e < end; e++)
			p->add(to, to, ko_led_at(p, in, (size_t)(e - first) * n), n, &run->red.s);
	}
	p->add(to, to, p->sum, n, &run->red.s);
	run->red.finish(to, to, n, &run->red.s);
	for (int k = 0; p->firsts && k < p->l.ngroups; k++)
		ko_led_place(p, k, ko_led_at(p, to, ko_led_first(p, k)), dst);
	return 0;
}

/* From here on the tree is that from root's leader. */
static void begin_spread(struct ko_led *p)
{
	double bytes = (double)(p->plan.count * p->run->size);

	p->radix = bytes < wide_end(&p->run->comm->agreed.costs) ? KO_LED_RADIX : 2;
}

/* Who passes it on to most others gets it first. Of a long one each gets all before the next one,
 * and passes it on meanwhile. */
int ko_led_spread(struct ko_led *p, char *dst)
{
	bool by_turns = p->plan.count * p->run->size > KO_LED_TOGETHER;
	int has, rc = 0;

	begin_spread(p);
	has = count_gathered(p);
	if (ko_led_after_root(p) > 0) {
		ko_leaders_add(&p->l, ko_leaders_leader(&p->l, next_to_root(p)), false, dst,
			       p->plan.count);
		rc = ko_leaders_do(&p->l);
	}
	for (int far = level_of(p) / p->radix; rc == 0 && far > 0; far /= p->radix)
		for (int k = far; rc == 0 && k < p->radix * far && k < has; k += far) {
			ko_leaders_add(&p->l, ko_leaders_leader(&p->l, p->l.group + k), true, dst,
				       p->plan.count);
			if (by_turns)
				rc = ko_leaders_do(&p->l);
		}
	return rc < 0 ? rc : ko_leaders_do(&p->l);
}

void ko_led_count_gather(const struct ko_led *p, struct ko_model *m)
{
	int has = count_gathered(p);

	m->received += ko_led_entry(p, has) - ko_led_entry(p, 1);
	m->sent += ko_led_after_root(p) ? ko_led_entry(p, has) : 0;
}

void ko_led_count_spread(struct ko_led *p, struct ko_model *m)
{
	int has;

	begin_spread(p);
	has = count_gathered(p);
	m->received += ko_led_after_root(p) ? p->plan.count : 0;
	for (int k = 1; k < has; k = end_of_message(p, k))
		m->sent += p->plan.count;
}
