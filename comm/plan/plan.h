/* The arithmetic of the ring: which part of which block a rank handles at which step. Pure: numbers in, numbers
 * out, no communicator in sight, so that a test can try every rank, step and count. */
#ifndef COMM_PLAN_PLAN_H
#define COMM_PLAN_PLAN_H

#include "comm/plan/coll.h"
#include "comm/plan/ring.h"

#include <stddef.h>

enum { KO_MAX_SIZE = 8 }; /* bytes of the largest element */

/* Elements [first, first + n) of the whole vector. */
struct ko_piece {
	size_t first, n;
};

/* A vector of `count` elements in blocks of `block`, each walked in `rounds` slices of `slice` elements. The
 * blocks tile [0, count); the last ones may be short or empty. Block b belongs to rank b; broadcast and reduce
 * have the one block 0.
 *   1 <= rounds, rounds * slice >= block, slice * element size <= slot length */
struct ko_plan {
	size_t count, block, slice, rounds;
	/* NULL: as above. Else block b is [firsts[b], firsts[b + 1]), nranks of them, and the largest one has `block` elements */
	const size_t *firsts;
};

/* The plan for `n` elements of `size` bytes as the collective's caller counts them (per rank for reduce_scatter
 * and all_gather). The caller has checked that nranks * n * size does not overflow. */
struct ko_plan ko_plan_make(enum ko_coll coll, size_t n, size_t size, int nranks, size_t slot_len);

/* The same for uneven blocks of reduce_scatter and all_gather. `firsts` must stay. */
struct ko_plan ko_plan_make_uneven(const size_t *firsts, size_t size, int nranks, size_t slot_len);

/* The part of a vector of broadcast or reduce that `rank` handles where the ranks share it out. */
struct ko_piece ko_plan_share(const struct ko_plan *p, int rank, int nranks);

static inline size_t ko_min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* All of `block`. */
static inline struct ko_piece ko_plan_block(const struct ko_plan *p, int block)
{
	size_t first;

	if (p->firsts)
		return (struct ko_piece){ p->firsts[block], p->firsts[block + 1] - p->firsts[block] };
	first = ko_min_size(p->count, (size_t)block * p->block);
	return (struct ko_piece){ first, ko_min_size(p->block, p->count - first) };
}

/* The part of `block` handled in `round`; n is 0 when the block is exhausted. */
struct ko_piece ko_plan_piece(const struct ko_plan *p, int block, size_t round);

/* Elements that `rank` sends and receives, by formula; what the links count must be equal to it. */
struct ko_model {
	size_t sent, received;
};
struct ko_model ko_plan_model(const struct ko_plan *p, enum ko_coll coll, int rank,
			      const struct ko_ring *ring, int root);

/* The same of an all-reduce for which whole vectors go round the ring. */
struct ko_model ko_plan_exchange_model(const struct ko_plan *p, int nranks);

/* The same through the board: what the rank writes into its cell, and reads in the others'. */
struct ko_model ko_plan_board_model(const struct ko_plan *p, enum ko_coll coll, int rank, int nranks,
				    int root);

/* The same without slots or cells: what the rank writes into others' buffers, and reads there; in windows, or in plain
 * memory; a broadcast in place or not; in plain memory a broadcast or reduce of which each rank does a share, or not. */
struct ko_model ko_plan_direct_model(const struct ko_plan *p, enum ko_coll coll, int rank, int nranks,
				     int root, bool windows, bool in_place, bool shared);

#endif
