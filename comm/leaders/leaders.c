/* Groups and their leaders (ko_leaders_make), and the steps into groups (ko_leaders_collect) and
 * out of them (ko_leaders_hand_out). */
#include "comm/leaders/leaders.h"

#include "comm/p2p/transfer.h"

struct ko_leaders ko_leaders_make(const struct ko_run *run, const struct ko_shape *shape, int size)
{
	const struct kolo_comm *c = run->comm;
	struct ko_leaders l = { .run = run, .shape = shape, .size = size, .root_group = -1 };
	int place = shape ? shape->places[c->rank] : c->rank;

	if (shape)
		l.size = shape->size;
	l.ngroups = (c->nranks - 1) / l.size + 1;
	l.group = place / l.size;
	l.me = place % l.size;
	if (ko_coll_has_root((int)run->desc.coll)) {
		place = shape ? shape->places[run->desc.root] : run->desc.root;
		l.root_group = place / l.size;
		l.root = place % l.size;
	}
	return l;
}

int ko_leaders_begin(struct ko_leaders *l)
{
	int nranks = l->run->comm->nranks;

	l->part = ko_transfers_run(l->run);
	l->all = ko_transfers_room(l->run->comm, 2 * (size_t)nranks);
	return l->all ? 0
		      : ko_fail(KOLO_ENOMEM, "rank %d: no memory for %d transfers",
				l->run->comm->rank, 2 * nranks);
}

int ko_leaders_ranks(const struct ko_leaders *l, int group)
{
	int rest = l->run->comm->nranks - group * l->size;

	return rest < l->size ? rest : l->size;
}

int ko_leaders_rank(const struct ko_leaders *l, int group, int number)
{
	int place = ko_shape_wrap(group, l->ngroups) * l->size + number;

	return l->shape ? l->shape->ranks[place] : place;
}

int ko_leaders_leader(const struct ko_leaders *l, int group)
{
	bool roots = ko_shape_wrap(group, l->ngroups) == l->root_group;

	return ko_leaders_rank(l, group, roots ? l->root : 0);
}

bool ko_leaders_leads(const struct ko_leaders *l)
{
	return l->me == (l->group == l->root_group ? l->root : 0);
}

void ko_leaders_add(struct ko_leaders *l, int peer, bool sends, const void *buffer, size_t n)
{
	l->all[l->count++] = ko_transfers_part(l->run, peer, sends, buffer, n);
}

int ko_leaders_do(struct ko_leaders *l)
{
	int rc = l->count ? ko_transfers_do(&l->part, l->all, l->count) : 0;

	l->count = 0;
	return rc;
}

int ko_leaders_collect(struct ko_leaders *l, const void *own, char *values, size_t n)
{
	size_t len = n * l->run->size;

	if (!ko_leaders_leads(l))
		ko_leaders_add(l, ko_leaders_leader(l, l->group), true, own, n);
	for (int k = 0; ko_leaders_leads(l) && k < ko_leaders_ranks(l, l->group); k++)
		if (k != l->me)
			ko_leaders_add(l, ko_leaders_rank(l, l->group, k), false,
				       values + (size_t)k * len, n);
	return ko_leaders_do(l);
}

int ko_leaders_hand_out(struct ko_leaders *l, void *dst, size_t n)
{
	if (!ko_leaders_leads(l))
		ko_leaders_add(l, ko_leaders_leader(l, l->group), false, dst, n);
	for (int k = 0; ko_leaders_leads(l) && k < ko_leaders_ranks(l, l->group); k++)
		if (k != l->me)
			ko_leaders_add(l, ko_leaders_rank(l, l->group, k), true, dst, n);
	return ko_leaders_do(l);
}
