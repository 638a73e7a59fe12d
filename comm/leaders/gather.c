#include "comm/leaders/gather.h"

void ko_led_add_entries(struct ko_led *p, int rank, bool sends, char *entries, int first, int end)
{
	size_t n = ko_led_entry(p, end) - ko_led_entry(p, first);

	if (n)
		ko_leaders_add(&p->l, rank, sends, ko_led_at(p, entries, ko_led_entry(p, first)),
			       n);
}

int ko_led_gather_all(struct ko_led *p, char *entries)
{
	int n = p->l.ngroups, rc = 0;

	for (int has = 1; rc == 0 && has < n; has *= 2) {
		int more = has < n - has ? has : n - has;

		ko_led_add_entries(p, ko_leaders_leader(&p->l, p->l.group - has), true, entries, 0,
				   more);
		ko_led_add_entries(p, ko_leaders_leader(&p->l, p->l.group + has), false, entries,
				   has, has + more);
		rc = ko_leaders_do(&p->l);
	}
	return rc;
}

void ko_led_count_gather_all(const struct ko_led *p, struct ko_model *m)
{
	int n = p->l.ngroups;

	for (int has = 1; has < n; has *= 2)
		m->sent += ko_led_entry(p, has < n - has ? has : n - has);
	m->received += ko_led_entry(p, n) - ko_led_entry(p, 1);
}
