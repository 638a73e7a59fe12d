/* Cuts a vector into blocks, slices and rounds (ko_plan_in_packets, ko_plan_piece). */
#include "comm/plan/plan.h"

void ko_plan_in_packets(struct ko_plan *p, size_t size, size_t packet)
{
	size_t fewest = ko_ceil_div(p->block, packet / size);

	if (p->slice * size > packet && p->rounds * ko_ceil_div(p->slice * size, packet) > fewest)
		ko_plan_slice(p, size, packet);
}

struct ko_plan ko_plan_make_uneven(const size_t *firsts, size_t size, int nranks, size_t slot_len)
{
	struct ko_plan p = { .count = firsts[nranks], .firsts = firsts };

	for (int b = 0; b < nranks; b++)
		if (firsts[b + 1] - firsts[b] > p.block)
			p.block = firsts[b + 1] - firsts[b];
	ko_plan_slice(&p, size, slot_len);
	ko_check(ko_plan_is_valid(&p, size, nranks, slot_len), "a plan of uneven blocks");
	return p;
}

/* Do the uneven blocks follow each other up to `count`, none larger than `block`, and one as
 * large? */
static bool firsts_are_valid(const struct ko_plan *p, int nranks)
{
	size_t largest = 0;

	for (int b = 0; b < nranks; b++) {
		if (p->firsts[b] > p->firsts[b + 1])
			return false;
		if (p->firsts[b + 1] - p->firsts[b] > largest)
			largest = p->firsts[b + 1] - p->firsts[b];
	}
	return p->firsts[0] == 0 && p->firsts[nranks] == p->count && largest == p->block;
}

bool ko_plan_is_valid(const struct ko_plan *p, size_t size, int nranks, size_t slot_len)
{
	if (p->rounds < 1 || p->slice > slot_len / size ||
	    ko_ceil_div(p->block, p->rounds) > p->slice)
		return false;
	if (p->firsts)
		return firsts_are_valid(p, nranks);
	return p->block <= p->count && ko_ceil_div(p->count, (size_t)nranks) <= p->block;
}

struct ko_piece ko_plan_piece(const struct ko_plan *p, int block, size_t round)
{
	struct ko_piece whole = ko_plan_block(p, block);
	size_t skip = ko_min_size(whole.n, round * p->slice);

	return (struct ko_piece){ whole.first + skip, ko_min_size(p->slice, whole.n - skip) };
}

struct ko_piece ko_plan_share(const struct ko_plan *p, int rank, int nranks)
{
	struct ko_plan shared = { .count = p->count,
				  .block = ko_ceil_div(p->count, (size_t)nranks) };

	return ko_plan_block(&shared, rank);
}

struct ko_plan ko_plan_in_blocks(const struct ko_plan *p, enum ko_coll coll, int nranks)
{
	struct ko_plan out = *p;

	if (coll == KO_REDUCE || coll == KO_BROADCAST)
		out.block = ko_plan_share(p, 0, nranks).n;
	return out;
}
