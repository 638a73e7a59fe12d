/* The arithmetic of blocks: which part of which block a rank handles at which step. Pure: numbers
 * in, numbers out. So a test can try every rank, step and count. */
#ifndef COMM_PLAN_PLAN_H
#define COMM_PLAN_PLAN_H

#include "comm/base/check.h"
#include "comm/plan/coll.h"

#include <stdbool.h>
#include <stddef.h>

enum { KO_MAX_SIZE = 16 }; /* bytes of the largest element of a type that Kolo knows */

/* Elements [first, first + n) of the whole vector. */
struct ko_piece {
	size_t first, n;
};

/* A vector of `count` elements in blocks of `block` elements. Each block is handled in `rounds`
 * slices of `slice` elements. The blocks tile [0, count); the last ones may be short or empty.
 * Block b belongs to rank b. Broadcast and reduce have one block, number 0.
 *   1 <= rounds, rounds * slice >= block, slice * element size <= slot length */
struct ko_plan {
	size_t count, block, slice, rounds;
	/* NULL: all blocks have `block` elements, as said above. Else there are nranks uneven
	 * blocks: block b is [firsts[b], firsts[b + 1]), and the largest one has `block`
	 * elements */
	const size_t *firsts;
};

/* Whether the plan keeps the equations above for elements of `size` bytes on nranks > 1 ranks. */
bool ko_plan_is_valid(const struct ko_plan *p, size_t size, int nranks, size_t slot_len);

static inline size_t ko_min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline size_t ko_ceil_div(size_t a, size_t b)
{
	return a / b + (a % b != 0);
}

/* Sets the rounds that the largest block needs, and their slices, of at most `slot_len` bytes. Even
 * rounds are better than full slots and a small rest. A block that surely fits one slot gets one
 * round without a division, which would take long for a small vector. An empty vector also has one
 * round, of empty slots: every rank makes the same moves. */
static inline void ko_plan_slice(struct ko_plan *p, size_t size, size_t slot_len)
{
	p->rounds = p->block * size <= slot_len ? 1 : ko_ceil_div(p->block, slot_len / size);
	p->slice = p->rounds == 1 ? p->block : ko_ceil_div(p->block, p->rounds);
}

/* *p becomes the plan for `n` elements of `size` bytes. `n` is what the collective's caller gives:
 * for reduce_scatter and all_gather the elements of each rank. The caller has checked that nranks *
 * n * size does not overflow. Inline, and into its place: a plan that is returned and copied costs
 * a small operation a tenth of its time. */
static inline void ko_plan_make(struct ko_plan *p, enum ko_coll coll, size_t n, size_t size,
				int nranks, size_t slot_len)
{
	p->count = n;
	p->block = coll == KO_ALL_REDUCE ? ko_ceil_div(n, (size_t)nranks) : n;
	p->firsts = NULL;
	if (coll == KO_REDUCE_SCATTER || coll == KO_ALL_GATHER || ko_coll_is_p2p(coll))
		p->count = n * (size_t)nranks;
	ko_plan_slice(p, size, slot_len);
	ko_check(ko_plan_is_valid(p, size, nranks, slot_len), "a plan of even blocks");
}

/* The plan for uneven blocks of reduce_scatter and all_gather. The plan points to `firsts`, which
 * must live as long as the plan. */
struct ko_plan ko_plan_make_uneven(const size_t *firsts, size_t size, int nranks, size_t slot_len);

/* Cuts slices again, to one packet (comm/transport/link.h) or less each, if all of them together
 * then have fewer packets. */
void ko_plan_in_packets(struct ko_plan *p, size_t size, size_t packet);

/* The part of a vector that `rank` handles if a broadcast or reduce shares its work out to all
 * ranks. */
struct ko_piece ko_plan_share(const struct ko_plan *p, int rank, int nranks);

/* The same plan, or of a reduce or broadcast one with a block for each rank: these shares. */
struct ko_plan ko_plan_in_blocks(const struct ko_plan *p, enum ko_coll coll, int nranks);

/* All elements of `block`. */
static inline struct ko_piece ko_plan_block(const struct ko_plan *p, int block)
{
	size_t first;

	if (p->firsts)
		return (struct ko_piece){ p->firsts[block],
					  p->firsts[block + 1] - p->firsts[block] };
	first = ko_min_size(p->count, (size_t)block * p->block);
	return (struct ko_piece){ first, ko_min_size(p->block, p->count - first) };
}

/* The part of `block` that is handled in `round`; n is 0 if nothing is left of the block. */
struct ko_piece ko_plan_piece(const struct ko_plan *p, int block, size_t round);

/* Elements that a rank sends and receives in an operation. */
struct ko_model {
	size_t sent, received;
};

#endif
