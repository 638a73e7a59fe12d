/* The algorithm "board" (ko_board_ops): what each rank writes into its cell, and reads in
 * others. */
#include "comm/coll/board.h"

#include "comm/coll/addition.h"
#include "comm/coll/tree.h"
#include "comm/memory/board.h"
#include "comm/memory/turns.h"

#include <string.h>

/* ---- Cells ----------------------------------------------------------------------------------- */

static struct ko_cell *cell_of(const struct ko_run *run, int rank)
{
	const struct ko_board *board = run->comm->board;

	return ko_board_cell(board, board->turn, rank);
}

/* n elements in `rank`'s cell. */
static char *payload(const struct ko_run *run, int rank, size_t n)
{
	return ko_cell_payload(cell_of(run, rank), n * run->size);
}

/* `src` may be NULL if n is 0. */
static int write_cell(struct ko_run *run, const void *src, size_t n)
{
	run->comm->board->sent += n * run->size;
	return ko_turn_give(run, src, n * run->size, NULL, 0);
}

/* What all ranks gave: n elements each. */
static struct ko_vectors vectors(const struct ko_run *run, size_t n)
{
	size_t stride = KO_BOARD_CELLS * run->comm->board->cell_len;

	return (struct ko_vectors){ payload(run, 0, n), stride,
				    ko_run_scalar(run, &cell_of(run, 0)->scalar),
				    run->red.how == KO_MADE ? 0 : stride };
}

/* Counts n elements read in each of the others' cells. */
static void count_read(struct ko_run *run, size_t n)
{
	run->comm->board->received += (size_t)(run->comm->nranks - 1) * n * run->size;
}

/* Buffers may be NULL if there are no elements. */
static void keep(const struct ko_run *run, void *dst, const void *src, size_t n)
{
	if (n)
		run->copy(dst, src, n, &run->red.s);
}

/* Copies elements `from` of the n that `rank` gave to dst. */
static void take_block(struct ko_run *run, int rank, size_t n, struct ko_piece from, void *dst)
{
	keep(run, dst, ko_at(run, payload(run, rank, n), from.first), from.n);
	run->comm->board->received += from.n * run->size;
}

/* dst = the elements q of what all ranks gave, n elements each, in the order of the tree. Apart, so
 * that nothing of it slows down the ring's order, which is inline. */
static __attribute__((noinline)) void add_up_as_tree(const struct ko_run *run, size_t n,
						     struct ko_piece q, void *dst)
{
	const struct ko_vectors all = vectors(run, n);

	ko_tree_add_up(run, &all, q, dst);
}

/* ---- The collectives ------------------------------------------------------------------------- */

/* Sums take this rank's own elements from its cell. dst may be src, and is overwritten early. */

static int all_reduce(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;
	int rc = write_cell(run, src, n);

	struct ko_vectors all;

	if (rc < 0 || (rc = ko_turn_wait_all(run)) < 0)
		return rc;
	count_read(run, n);
	if (run->comm->sums == KO_SUMS_TREE) {
		add_up_as_tree(run, n, (struct ko_piece){ 0, n }, dst);
		return 0;
	}
	all = vectors(run, n);
	ko_add_up_all(run, &all, dst);
	return 0;
}

static int reduce_scatter(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;
	int rank = run->comm->rank, rc = write_cell(run, src, n);
	struct ko_piece q = ko_plan_block(&run->plan, rank);
	struct ko_vectors all;

	if (rc < 0 || (rc = ko_turn_wait_all(run)) < 0)
		return rc;
	count_read(run, q.n);
	if (run->comm->sums == KO_SUMS_TREE) {
		add_up_as_tree(run, n, q, dst);
		return 0;
	}
	all = vectors(run, n);
	ko_add_up(run, &all, rank, q, dst);
	return 0;
}

static int all_gather(struct ko_run *run, const void *src, void *dst)
{
	int rank = run->comm->rank, nranks = run->comm->nranks, rc;
	struct ko_piece q = ko_plan_block(&run->plan, rank);

	rc = write_cell(run, src, q.n);
	if (rc == 0)
		keep(run, ko_at_mut(run, dst, q.first), src, q.n);
	if (rc == 0)
		rc = ko_turn_wait_all(run);
	for (int k = 1; rc == 0 && k < nranks; k++) {
		int r = ko_ring_back(&run->comm->ring, rank, k);

		q = ko_plan_block(&run->plan, r);
		take_block(run, r, q.n, (struct ko_piece){ 0, q.n }, ko_at_mut(run, dst, q.first));
	}
	return rc;
}

/* Root does not wait for the others. */
static int broadcast(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;
	int root = run->desc.root, rc;
	bool mine = run->comm->rank == root;

	rc = mine ? write_cell(run, src, n) : ko_turn_wait(run, root);
	if (rc < 0 || n == 0)
		return rc;
	run->copy(dst, mine ? src : payload(run, root, n), n, &run->red.s);
	if (!mine)
		run->comm->board->received += n * run->size;
	return 0;
}

/* The others don't wait for root. */
static int reduce(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;
	int rc = write_cell(run, src, n);
	struct ko_vectors all;

	if (rc < 0 || run->comm->rank != run->desc.root)
		return rc;
	rc = ko_turn_wait_all(run);
	if (rc < 0)
		return rc;
	count_read(run, n);
	if (run->comm->sums == KO_SUMS_TREE) {
		add_up_as_tree(run, n, ko_plan_block(&run->plan, 0), dst);
		return 0;
	}
	all = vectors(run, n);
	ko_add_up(run, &all, run->desc.root, ko_plan_block(&run->plan, 0), dst);
	return 0;
}

/* Elements that a rank gives in all_to_all and scatter: the blocks of all others. Its own block is
 * left out. */
static size_t given(const struct ko_run *run)
{
	return (size_t)(run->comm->nranks - 1) * run->plan.block;
}

static int give_blocks(struct ko_run *run, const void *src)
{
	struct ko_piece own = ko_plan_block(&run->plan, run->comm->rank);
	size_t after = own.first + own.n;

	run->comm->board->sent += given(run) * run->size;
	return ko_turn_give(run, src, own.first * run->size, ko_at(run, src, after),
			    (run->plan.count - after) * run->size);
}

static void take_mine(struct ko_run *run, int giver, void *dst)
{
	int rank = run->comm->rank, index = rank < giver ? rank : rank - 1;
	size_t n = run->plan.block;

	take_block(run, giver, given(run), (struct ko_piece){ (size_t)index * n, n }, dst);
}

/* Block r of src is for rank r, and block r of dst from it. */
static int all_to_all(struct ko_run *run, const void *src, void *dst)
{
	int rank = run->comm->rank, nranks = run->comm->nranks;
	struct ko_piece mine = ko_plan_block(&run->plan, rank);
	int rc = give_blocks(run, src);

	if (rc == 0)
		keep(run, ko_at_mut(run, dst, mine.first), ko_at(run, src, mine.first), mine.n);
	if (rc == 0)
		rc = ko_turn_wait_all(run);
	for (int k = 1; rc == 0 && k < nranks; k++) {
		int r = ko_ring_back(&run->comm->ring, rank, k);

		take_mine(run, r, ko_at_mut(run, dst, ko_plan_block(&run->plan, r).first));
	}
	return rc;
}

/* The others don't wait for root. Root's own block may be in place. */
static int gather(struct ko_run *run, const void *src, void *dst)
{
	int rank = run->comm->rank, nranks = run->comm->nranks, rc = 0;
	size_t n = run->plan.block;

	if (rank != run->desc.root)
		return write_cell(run, src, n);
	keep(run, ko_at_mut(run, dst, (size_t)rank * n), src, n);
	for (int k = 1; rc == 0 && k < nranks; k++) {
		int r = ko_ring_back(&run->comm->ring, rank, k);

		rc = ko_turn_wait(run, r);
		if (rc == 0)
			take_block(run, r, n, (struct ko_piece){ 0, n },
				   ko_at_mut(run, dst, (size_t)r * n));
	}
	return rc;
}

/* Root does not wait for the others. Its own block may be in place. */
static int scatter(struct ko_run *run, const void *src, void *dst)
{
	struct ko_piece mine = ko_plan_block(&run->plan, run->comm->rank);
	int root = run->desc.root, rc;

	if (run->comm->rank == root) {
		rc = give_blocks(run, src);
		if (rc == 0)
			keep(run, dst, ko_at(run, src, mine.first), mine.n);
		return rc;
	}
	rc = ko_turn_wait(run, root);
	if (rc == 0)
		take_mine(run, root, dst);
	return rc;
}

static int barrier(struct ko_run *run)
{
	int rc = write_cell(run, NULL, 0);

	return rc < 0 ? rc : ko_turn_wait_all(run);
}

static int give_and_take(struct ko_run *run, const void *src, void *dst)
{
	enum ko_coll coll = (enum ko_coll)run->desc.coll;
	int rc;

	switch (coll) {
	case KO_ALL_REDUCE: rc = all_reduce(run, src, dst); break;
	case KO_REDUCE_SCATTER: rc = reduce_scatter(run, src, dst); break;
	case KO_ALL_GATHER: rc = all_gather(run, src, dst); break;
	case KO_BROADCAST: rc = broadcast(run, src, dst); break;
	case KO_REDUCE: rc = reduce(run, src, dst); break;
	case KO_ALL_TO_ALL: rc = all_to_all(run, src, dst); break;
	case KO_GATHER: rc = gather(run, src, dst); break;
	case KO_SCATTER: rc = scatter(run, src, dst); break;
	default: rc = barrier(run); break;
	}
	ko_turn_end(run);
	return rc;
}

static struct ko_model model(const struct ko_run *run)
{
	const struct ko_plan *p = &run->plan;
	int rank = run->comm->rank, root = run->desc.root;
	size_t others = (size_t)run->comm->nranks - 1, own = ko_plan_block(p, rank).n;

	switch ((enum ko_coll)run->desc.coll) {
	case KO_REDUCE_SCATTER: return (struct ko_model){ p->count, others * own };
	case KO_ALL_GATHER: return (struct ko_model){ own, p->count - own };
	case KO_ALL_REDUCE: return (struct ko_model){ p->count, others * p->count };
	case KO_BROADCAST:
		return (struct ko_model){ rank == root ? p->count : 0,
					  rank == root ? 0 : p->count };
	case KO_REDUCE: return (struct ko_model){ p->count, rank == root ? others * p->count : 0 };
	case KO_ALL_TO_ALL: return (struct ko_model){ others * own, others * own };
	case KO_GATHER:
		return (struct ko_model){ rank == root ? 0 : own, rank == root ? others * own : 0 };
	case KO_SCATTER:
		return (struct ko_model){ rank == root ? others * own : 0, rank == root ? 0 : own };
	default: return (struct ko_model){ 0, 0 };
	}
}

/* ---- When ------------------------------------------------------------------------------------ */

/* Each rank writes all of the vector into its cell, or its own block for an all-gather. */
static uint64_t end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows)
{
	(void)windows;
	if (coll == KO_BARRIER)
		return 1;
	return (coll == KO_ALL_GATHER ? costs->board_room * (uint64_t)nranks : costs->board_room) +
	       1;
}

/* One turn. Crossings are the bytes, as a share of the vector, that a rank writes and then reads;
 * additions those that it adds up more than round the ring. */
static struct ko_estimate cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
			       bool windows)
{
	double n = nranks, crossings, additions = 0;

	(void)windows;
	switch (coll) {
	case KO_ALL_REDUCE: /* each rank adds up all of it, and not its block alone */
		crossings = 1 + (n - 1);
		additions = (n - 1) - (n - 1) / n;
		break;
	case KO_REDUCE_SCATTER: crossings = 1 + (n - 1) / n; break;
	case KO_ALL_GATHER: crossings = 1 / n + (n - 1) / n; break;
	case KO_BROADCAST: crossings = 2; break;
	default: crossings = n; break; /* of reduce */
	}
	return (struct ko_estimate){ costs->turn_ns, crossings / costs->bytes_per_ns +
							     additions / KO_ADDED_PER_NS };
}

/* The largest of uneven blocks may not fit into a cell. */
static bool takes(const struct ko_run *run)
{
	bool part = run->desc.coll == KO_ALL_GATHER;

	return !(run->desc.how & KO_UNEVEN) ||
	       (part ? run->plan.block : run->plan.count) * run->size <= run->comm->board->room;
}

const struct ko_algorithm_ops ko_board_ops = {
	.name = "board",
	.what = "each rank writes once into shared memory, and reads what it needs",
	.sums = 1 << KO_SUMS_RING | 1 << KO_SUMS_TREE,
	.reach = KO_SHARED_MEMORY,
	.end = end,
	.cost = cost,
	.takes = takes,
	.run = give_and_take,
	.model = model,
};
