/* Cuts a vector into blocks, slices and rounds (ko_plan_make), and computes how many elements each
 * rank then moves (ko_plan_model and others). */
#include "comm/plan/plan.h"

#include "comm/base/check.h"

static size_t ceil_div(size_t a, size_t b)
{
	return a / b + (a % b != 0);
}

/* Sets the rounds that the largest block needs. A block that surely fits one slot gets one round
 * without a division, which would take long for a small vector. An empty vector also has one round,
 * of empty slots: every rank makes the same moves. */
static void slice(struct ko_plan *p, size_t size, size_t slot_len)
{
	p->rounds = p->block <= slot_len / KO_MAX_SIZE ? 1 : ceil_div(p->block, slot_len / size);
	/* Even rounds are better than full slots and a small rest. */
	p->slice = p->rounds == 1 ? p->block : ceil_div(p->block, p->rounds);
}

struct ko_plan ko_plan_make(enum ko_coll coll, size_t n, size_t size, int nranks, size_t slot_len)
{
	struct ko_plan p = { .count = n, .block = n };

	if (coll == KO_ALL_REDUCE)
		p.block = ceil_div(n, (size_t)nranks);
	if (coll == KO_REDUCE_SCATTER || coll == KO_ALL_GATHER || ko_coll_is_p2p(coll))
		p.count = n * (size_t)nranks;
	slice(&p, size, slot_len);
	ko_check(ko_plan_is_valid(&p, size, nranks, slot_len), "a plan of even blocks");
	return p;
}

struct ko_plan ko_plan_make_uneven(const size_t *firsts, size_t size, int nranks, size_t slot_len)
{
	struct ko_plan p = { .count = firsts[nranks], .firsts = firsts };

	for (int b = 0; b < nranks; b++)
		if (firsts[b + 1] - firsts[b] > p.block)
			p.block = firsts[b + 1] - firsts[b];
	slice(&p, size, slot_len);
	ko_check(ko_plan_is_valid(&p, size, nranks, slot_len), "a plan of uneven blocks");
	return p;
}

/* Do the uneven blocks follow each other up to `count`, none larger than `block`, and one as large? */
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
	if (p->rounds < 1 || p->slice > slot_len / size || ceil_div(p->block, p->rounds) > p->slice)
		return false;
	if (p->firsts)
		return firsts_are_valid(p, nranks);
	return p->block <= p->count && ceil_div(p->count, (size_t)nranks) <= p->block;
}

struct ko_piece ko_plan_piece(const struct ko_plan *p, int block, size_t round)
{
	struct ko_piece whole = ko_plan_block(p, block);
	size_t skip = ko_min_size(whole.n, round * p->slice);

	return (struct ko_piece){ whole.first + skip, ko_min_size(p->slice, whole.n - skip) };
}

struct ko_model ko_plan_model(const struct ko_plan *p, enum ko_coll coll, int rank,
			      const struct ko_ring *ring, int root)
{
	size_t before = ko_plan_block(p, ko_ring_prev(ring, rank)).n;
	size_t own = ko_plan_block(p, rank).n;
	size_t after = ko_plan_block(p, ko_ring_next(ring, rank)).n;

	switch (coll) {
	case KO_REDUCE_SCATTER: /* sends every block except its own, which it finishes */
		return (struct ko_model){ p->count - own, p->count - before };
	case KO_ALL_GATHER: /* sends every block except next's, which next has already */
		return (struct ko_model){ p->count - after, p->count - own };
	case KO_ALL_REDUCE: /* the two phases together */
		return (struct ko_model){ 2 * p->count - own - after, 2 * p->count - own - before };
	case KO_BROADCAST: /* a chain from root to the rank before it */
		return (struct ko_model){ ko_ring_next(ring, rank) == root ? 0 : p->count,
					  rank == root ? 0 : p->count };
	case KO_REDUCE: /* a chain from the rank after root to root */
		return (struct ko_model){ rank == root ? 0 : p->count,
					  ko_ring_prev(ring, rank) == root ? 0 : p->count };
	default: return (struct ko_model){ 0, 0 };
	}
}

struct ko_model ko_plan_board_model(const struct ko_plan *p, enum ko_coll coll, int rank, int nranks,
				    int root)
{
	size_t others = (size_t)nranks - 1, own = ko_plan_block(p, rank).n;

	switch (coll) {
	case KO_REDUCE_SCATTER: return (struct ko_model){ p->count, others * own };
	case KO_ALL_GATHER: return (struct ko_model){ own, p->count - own };
	case KO_ALL_REDUCE: return (struct ko_model){ p->count, others * p->count };
	case KO_BROADCAST:
		return (struct ko_model){ rank == root ? p->count : 0, rank == root ? 0 : p->count };
	case KO_REDUCE: return (struct ko_model){ p->count, rank == root ? others * p->count : 0 };
	case KO_ALL_TO_ALL: return (struct ko_model){ others * own, others * own };
	case KO_GATHER: return (struct ko_model){ rank == root ? 0 : own, rank == root ? others * own : 0 };
	case KO_SCATTER: return (struct ko_model){ rank == root ? others * own : 0, rank == root ? 0 : own };
	default: return (struct ko_model){ 0, 0 };
	}
}

struct ko_model ko_plan_exchange_model(const struct ko_plan *p, int nranks)
{
	size_t others = (size_t)nranks - 1;

	return (struct ko_model){ others * p->count, others * p->count };
}

struct ko_piece ko_plan_share(const struct ko_plan *p, int rank, int nranks)
{
	struct ko_plan shared = { .count = p->count, .block = ceil_div(p->count, (size_t)nranks) };

	return ko_plan_block(&shared, rank);
}

struct ko_model ko_plan_direct_model(const struct ko_plan *p, enum ko_coll coll, int rank, int nranks,
				     int root, bool windows, bool in_place, bool shared)
{
	size_t others = (size_t)nranks - 1, own = ko_plan_block(p, rank).n, all = p->count;
	size_t share = ko_plan_share(p, rank, nranks).n, given = shared ? all / (size_t)nranks : 0;

	switch (coll) {
	case KO_REDUCE_SCATTER: return (struct ko_model){ 0, others * own };
	case KO_ALL_GATHER:
		return windows ? (struct ko_model){ others * own, 0 } : (struct ko_model){ 0, all - own };
	case KO_ALL_REDUCE: return (struct ko_model){ others * own, others * own };
	case KO_BROADCAST: /* in place, root's dst has the vector already */
		if (!windows)
			return rank == root ? (struct ko_model){ others * given, 0 }
					    : (struct ko_model){ 0, all - given };
		return (struct ko_model){ (others - (in_place && rank != root)) * share,
					  rank == root ? 0 : share };
	case KO_REDUCE:
		if (!windows && !shared)
			return (struct ko_model){ 0, rank == root ? others * all : 0 };
		return (struct ko_model){ rank == root ? 0 : share, others * share };
	default: return (struct ko_model){ 0, 0 };
	}
}
