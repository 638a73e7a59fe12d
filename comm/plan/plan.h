/* The arithmetic of blocks: which part of which block a rank handles at which step. Pure: numbers
 * in, numbers out. So a test can try every rank, step and count. */
#ifndef COMM_PLAN_PLAN_H
#define COMM_PLAN_PLAN_H

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

/* The plan for `n` elements of `size` bytes. `n` is what the collective's caller gives: for
 * reduce_scatter and all_gather the elements of each rank. The caller has checked that nranks * n *
 * size does not overflow. */
struct ko_plan ko_plan_make(enum ko_coll coll, size_t n, size_t size, int nranks, size_t slot_len);

/* The plan for uneven blocks of reduce_scatter and all_gather. The plan points to `firsts`, which
 * must live as long as the plan. */
struct ko_plan ko_plan_make_uneven(const size_t *firsts, size_t size, int nranks, size_t slot_len);

/* Sets the rounds that the largest block needs, and their slices, of at most `slot_len` bytes. Even
 * rounds are better than full slots and a small rest. */
void ko_plan_slice(struct ko_plan *p, size_t size, size_t slot_len);

/* Cuts slices again, to one packet (comm/transport/link.h) or less each, if all of them together
 * then have fewer packets. */
void ko_plan_in_packets(struct ko_plan *p, size_t size, size_t packet);

/* Whether the plan keeps the equations above for elements of `size` bytes on nranks > 1 ranks. */
bool ko_plan_is_valid(const struct ko_plan *p, size_t size, int nranks, size_t slot_len);

/* The part of a vector that `rank` handles if a broadcast or reduce shares its work out to all
 * ranks. */
struct ko_piece ko_plan_share(const struct ko_plan *p, int rank, int nranks);

/* The same plan, or of a reduce or broadcast one with a block for each rank: these shares. */
struct ko_plan ko_plan_in_blocks(const struct ko_plan *p, enum ko_coll coll, int nranks);

static inline size_t ko_min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

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
