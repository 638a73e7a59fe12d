#include "comm/leaders/gather.h"

/* A message of the elements of n groups from `group` on, where they are in a vector; or two, if
 * groups begin anew between them. */
static void add_parts(struct ko_led *p, int rank, bool sends, char *vector, int group, int n)
{
	for (int part; n > 0; group += part, n -= part) {
		size_t first, count;

		group = ko_shape_wrap(group, p->l.ngroups);
		part = n < p->l.ngroups - group ? n : p->l.ngroups - group;
		first = ko_led_first(p, group);
		count = ko_led_first(p, group + part) - first;
		if (count)
			ko_leaders_add(&p->l, rank, sends, ko_led_at(p, vector, first), count);
	}
}

void ko_led_add_entries(struct ko_led *p, int rank, bool sends, char *entries, int first, int end)
{
	size_t n = ko_led_entry(p, end) - ko_led_entry(p, first);

	if (p->in_place)
		add_parts(p, rank, sends, entries, p->l.group + first, end - first);
	else if (n)
		ko_leaders_add(&p->l, rank, sends, ko_led_at(p, entries, ko_led_entry(p, first)),
			       n);
}

/* The end of what a leader has after the next hop, if it has so many entries. */
static int end_of_hop(const struct ko_led *p, int has)
{
	return 2 * has < p->l.ngroups ? 2 * has : p->l.ngroups;
}

/* In place: the group's other ranks get what the leader has. */
static void pass_on(struct ko_led *p, char *dst, int first, int end)
{
	for (int i = 0; p->in_place && i < p->l.size; i++)
		if (i != p->l.me)
			ko_led_add_entries(p, ko_leaders_rank(&p->l, p->l.group, i), true, dst,
					   first, end);
}

int ko_led_gather_all(struct ko_led *p, char *entries)
{
	int n = p->l.ngroups, passed = 0, rc = 0;

	for (int has = 1; rc == 0 && has < n; has = end_of_hop(p, has)) {
		int end = end_of_hop(p, has);

		ko_led_add_entries(p, ko_leaders_leader(&p->l, p->l.group - has), true, entries, 0,
				   end - has);
		ko_led_add_entries(p, ko_leaders_leader(&p->l, p->l.group + has), false, entries,
				   has, end);
		pass_on(p, entries, passed, has);
		passed = has;
		rc = ko_leaders_do(&p->l);
	}
	if (rc < 0)
		return rc;
	pass_on(p, entries, passed, n);
	return ko_leaders_do(&p->l);
}

int ko_led_get_all(struct ko_led *p, char *dst)
{
	int leader = ko_leaders_leader(&p->l, p->l.group), n = p->l.ngroups;

	ko_led_add_entries(p, leader, false, dst, 0, 1);
	for (int has = 1; has < n; has = end_of_hop(p, has))
		ko_led_add_entries(p, leader, false, dst, has, end_of_hop(p, has));
	return ko_leaders_do(&p->l);
}

void ko_led_count_gather_all(const struct ko_led *p, struct ko_model *m)
{
	int n = p->l.ngroups;

	for (int has = 1; has < n; has *= 2)
		m->sent += ko_led_entry(p, has < n - has ? has : n - has);
	m->received += ko_led_entry(p, n) - ko_led_entry(p, 1);
}
