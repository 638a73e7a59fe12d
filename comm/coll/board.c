/* The algorithms "board" and "slices" (ko_board_ops, ko_slices_ops): what each rank writes into its
 * cell, and reads in others. */
#include "comm/coll/board.h"

#include "comm/coll/addition.h"
#include "comm/coll/tree.h"
#include "comm/memory/board.h"
#include "comm/memory/turns.h"
#include "comm/sys/thread.h"

#include <math.h>

/* ---- Cells ----------------------------------------------------------------------------------- */

/* n elements in `rank`'s cell. */
static char *payload(const struct ko_run *run, int rank, size_t n)
{
	const struct ko_board *board = run->comm->board;

	return ko_board_payload(board, board->turn, rank, n * run->size);
}

/* `src` may be NULL if n is 0. */
static int write_cell(struct ko_run *run, const void *src, size_t n)
{
	run->comm->board->sent += n * run->size;
	return ko_turn_give(run, src, n * run->size, NULL, 0);
}

/* What all ranks gave in a turn: `len` bytes each. */
static struct ko_vectors vectors_in(const struct ko_run *run, struct ko_turn turn, size_t len)
{
	const struct ko_board *board = run->comm->board;

	return (struct ko_vectors){ ko_board_payload(board, turn, 0, len), board->rank_len,
				    ko_run_scalar(run,
						  &ko_board_cell(board, turn.number, 0)->scalar),
				    run->red.how == KO_MADE ? 0 : board->rank_len };
}

/* The same in this turn: n elements each. */
static struct ko_vectors vectors(const struct ko_run *run, size_t n)
{
	return vectors_in(run, run->comm->board->turn, n * run->size);
}

/* Counts n elements read in each of the others' cells. */
static void count_read(struct ko_run *run, size_t n)
{
	run->comm->board->received += (size_t)(run->comm->nranks - 1) * n * run->size;
}

/* Waits for all others, which write as many elements as this rank has written: n. */
static int wait_for_writers(struct ko_run *run, size_t n)
{
	for (int k = ko_board_pauses(run->comm->board, n * run->size); k > 0; k--)
		ko_relax();
	return ko_turn_wait_all(run);
}

/* Buffers may be NULL if there are no elements. */
static void keep(const struct ko_run *run, void *dst, const void *src, size_t n)
{
	if (n)
		run->copy(dst, src, n, &run->red.s);
}

/* Copies n elements that another rank has written: by a loop if it has written them with ordinary
 * stores, as this one does (why: D200, D207 in comm/DECISIONS.md). */
static void fetch(const struct ko_run *run, void *dst, const void *src, size_t n)
{
	enum { LONG = 2 << 10 };
	size_t len = n * run->size;

	if (len > LONG && run->comm->board->writer.stores != KO_STREAMING)
		ko_copy_by_loop(dst, src, len);
	else
		keep(run, dst, src, n);
}

/* Copies elements `from` of the n that `rank` gave to dst. */
static void take_block(struct ko_run *run, int rank, size_t n, struct ko_piece from, void *dst)
{
	fetch(run, dst, ko_at(run, payload(run, rank, n), from.first), from.n);
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

/* In the ring's order sums take this rank's own elements from src, where they still are. */

static int all_reduce(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;
	int rc = write_cell(run, src, n);

	struct ko_vectors all;

	if (rc < 0 || (rc = wait_for_writers(run, n)) < 0)
		return rc;
	count_read(run, n);
	if (run->comm->sums == KO_SUMS_TREE) {
		add_up_as_tree(run, n, (struct ko_piece){ 0, n }, dst);
		return 0;
	}
	all = vectors(run, n);
	ko_add_up_all(run, &all, src, dst);
	return 0;
}

/* Must this rank's own elements lie in its cell too, because dst is written before they are added?
 * Other ranks are before it in the order in which its sums are added. */
static bool needs_own_copy(const struct ko_run *run, const void *own, const void *dst)
{
	return run->comm->sums == KO_SUMS_TREE ||
	       !ko_adds_mine(run, own, dst, run->comm->nranks - 1);
}

/* Writes n elements for the others: those of `own` only if this rank needs them there. */
static int give_but_own(struct ko_run *run, const void *src, size_t n, struct ko_piece own,
			bool needs_own)
{
	struct ko_board *board = run->comm->board;
	size_t len = n * run->size, first = own.first * run->size;
	size_t after = first + (needs_own ? 0 : own.n * run->size);
	char *out = payload(run, run->comm->rank, n);
	int rc;

	board->sent += (n - own.n) * run->size;
	if (len <= board->room_len)
		return ko_turn_give(run, src, len, NULL, 0);
	rc = ko_turn_open(run);
	if (rc < 0)
		return rc;
	ko_writer_begin(&board->writer, len - (after - first));
	ko_board_write(board, len, out, src, first);
	ko_board_write(board, len, out + after, (const char *)src + after, len - after);
	ko_writer_end(&board->writer);
	ko_turn_publish(run);
	return 0;
}

static int reduce_scatter(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;
	int rank = run->comm->rank, rc;
	struct ko_piece q = ko_plan_block(&run->plan, rank);
	struct ko_vectors all;

	rc = give_but_own(run, src, n, q, needs_own_copy(run, ko_at(run, src, q.first), dst));
	if (rc < 0 || (rc = wait_for_writers(run, n - q.n)) < 0)
		return rc;
	count_read(run, q.n);
	if (run->comm->sums == KO_SUMS_TREE) {
		add_up_as_tree(run, n, q, dst);
		return 0;
	}
	all = vectors(run, n);
	ko_add_up(run, &all, rank, q, ko_at(run, src, q.first), dst);
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
		rc = wait_for_writers(run, q.n);
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
	if (mine) {
		keep(run, dst, src, n);
	} else {
		fetch(run, dst, payload(run, root, n), n);
		run->comm->board->received += n * run->size;
	}
	return 0;
}

/* The others don't wait for root, which writes only what it needs itself. */
static int reduce(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;
	bool is_root = run->comm->rank == run->desc.root;
	int rc = 0;
	struct ko_vectors all;

	if (!is_root)
		return write_cell(run, src, n);
	if (needs_own_copy(run, src, dst))
		rc = ko_turn_give(run, src, n * run->size, NULL, 0);
	if (rc == 0)
		rc = ko_turn_wait_all(run);
	if (rc < 0)
		return rc;
	count_read(run, n);
	if (run->comm->sums == KO_SUMS_TREE) {
		add_up_as_tree(run, n, ko_plan_block(&run->plan, 0), dst);
		return 0;
	}
	all = vectors(run, n);
	ko_add_up(run, &all, run->desc.root, ko_plan_block(&run->plan, 0), src, dst);
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
		rc = wait_for_writers(run, given(run));
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

/* Elements that a rank gives at most. */
static size_t most_given(const struct ko_run *run)
{
	switch ((enum ko_coll)run->desc.coll) {
	case KO_ALL_GATHER:
	case KO_GATHER: return run->plan.block;
	case KO_ALL_TO_ALL:
	case KO_SCATTER: return given(run);
	default: return run->plan.count;
	}
}

static int give_and_take(struct ko_run *run, const void *src, void *dst)
{
	enum ko_coll coll = (enum ko_coll)run->desc.coll;
	int rc;

	if (run->plan.count * run->size > run->comm->board->room_len)
		ko_board_take_rooms(run->comm->board, most_given(run) * run->size);
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
	case KO_REDUCE_SCATTER: return (struct ko_model){ p->count - own, others * own };
	case KO_ALL_GATHER: return (struct ko_model){ own, p->count - own };
	case KO_ALL_REDUCE: return (struct ko_model){ p->count, others * p->count };
	case KO_BROADCAST:
		return (struct ko_model){ rank == root ? p->count : 0,
					  rank == root ? 0 : p->count };
	case KO_REDUCE:
		return (struct ko_model){ rank == root ? 0 : p->count,
					  rank == root ? others * p->count : 0 };
	case KO_ALL_TO_ALL: return (struct ko_model){ others * own, others * own };
	case KO_GATHER:
		return (struct ko_model){ rank == root ? 0 : own, rank == root ? others * own : 0 };
	case KO_SCATTER:
		return (struct ko_model){ rank == root ? others * own : 0, rank == root ? 0 : own };
	default: return (struct ko_model){ 0, 0 };
	}
}

/* ---- When ------------------------------------------------------------------------------------ */

/* Each rank writes all of the vector, or its own block for an all-gather. */
static uint64_t end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows)
{
	uint64_t fits = costs->board_room;

	(void)windows;
	if (coll == KO_BARRIER)
		return 1;
	if (coll == KO_ALL_GATHER)
		fits *= (uint64_t)nranks;
	return fits + 1;
}

/* Bytes per ns that a rank writes and another one reads. Directly they cost what they cost between
 * neighbours, so beside that the board's own rate does not count. */
static double rate(const struct ko_costs *costs, bool windows)
{
	return windows || costs->board_bytes_per_ns <= 0 ? costs->bytes_per_ns
							 : costs->board_bytes_per_ns;
}

/* One turn. Crossings are the bytes, as a share of the vector, that a rank writes and then reads;
 * additions those that it adds up more than round the ring. */
static struct ko_estimate cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
			       bool windows)
{
	/* Bytes that a core adds up per ns, about, if they lie in its caches; the second beside
	 * slices (why: D164, D214 in comm/DECISIONS.md) */
	enum { BESIDE_RING = 15, SHARED = 60 };
	double n = nranks, crossings, additions = 0;

	switch (coll) {
	case KO_ALL_REDUCE: /* each rank adds up all of it, and not its block alone */
		crossings = n;
		additions = costs->share * ((n - 1) - (n - 1) / n);
		break;
	case KO_REDUCE_SCATTER: crossings = 2 * (n - 1) / n; break;
	case KO_ALL_GATHER: crossings = 1; break;
	case KO_BROADCAST: crossings = 2; break;
	default: crossings = n; break; /* of reduce */
	}
	return (struct ko_estimate){
		costs->turn_ns, crossings / rate(costs, windows) +
					additions / (costs->share > 1 ? SHARED : BESIDE_RING)
	};
}

/* The largest of uneven blocks may not fit. */
static bool takes(const struct ko_run *run)
{
	return !(run->desc.how & KO_UNEVEN) ||
	       most_given(run) * run->size <= ko_board_room(run->comm->board);
}

/* ---- In slices ------------------------------------------------------------------------------- */

/* An operation in several turns. Each rank has a part of the vector: what it adds up, or gives to
 * an all-gather. A slice has some elements of each part. */
struct slices {
	struct ko_run *run;
	struct ko_plan parts; /* a block for each rank; of a broadcast one alone */
	size_t step;          /* elements of a part in a slice */
	size_t count;         /* of slices */
	size_t len;           /* bytes of a payload: `step` elements, as often as `spans` says */
};

/* How many times `step` elements a rank gives in a turn. */
static size_t spans(enum ko_coll coll, int nranks)
{
	switch (coll) {
	case KO_ALL_REDUCE:
	case KO_REDUCE: return (size_t)nranks + 1; /* the last are sums */
	case KO_REDUCE_SCATTER: return (size_t)nranks;
	default: return 1;
	}
}

/* Elements of a part that fit into a turn: whole cache lines, if they have so many bytes. */
static size_t fitting(const struct ko_run *run)
{
	enum { LINE = 64 };
	int nranks = run->comm->nranks;
	size_t bytes =
		ko_board_room(run->comm->board) / spans((enum ko_coll)run->desc.coll, nranks);
	size_t n = bytes / run->size;

	return LINE % run->size || bytes < LINE ? n : n - n % (LINE / run->size);
}

static struct slices cut(struct ko_run *run)
{
	enum ko_coll coll = (enum ko_coll)run->desc.coll;
	int nranks = run->comm->nranks;
	struct slices p = { .run = run, .parts = run->plan, .step = fitting(run) };

	if (coll == KO_REDUCE)
		p.parts = ko_plan_in_blocks(&run->plan, coll, nranks);
	p.count = p.parts.block ? ko_ceil_div(p.parts.block, p.step) : 1;
	p.step = ko_min_size(p.step, p.parts.block);
	p.len = spans(coll, nranks) * p.step * run->size;
	return p;
}

/* The elements of a part that are in slice k. */
static struct ko_piece piece(const struct slices *p, int part, size_t k)
{
	struct ko_piece all = ko_plan_block(&p->parts, part);
	size_t before = ko_min_size(all.n, k * p->step);

	return (struct ko_piece){ all.first + before, ko_min_size(p->step, all.n - before) };
}

/* The elements that `rank` gave in this turn for a part. */
static char *given_for(const struct slices *p, int rank, int part)
{
	const struct ko_board *board = p->run->comm->board;

	return ko_board_payload(board, board->turn, rank, p->len) +
	       (size_t)part * p->step * p->run->size;
}

/* Begins a turn in which all ranks give. */
static int open_turn(const struct slices *p)
{
	ko_board_take_rooms(p->run->comm->board, p->len);
	return ko_turn_open(p->run);
}

/* Writes slice k for the others: this rank's own part of it only if it needs it there. */
static void write_slice(const struct slices *p, size_t k, const void *src, bool needs_own)
{
	struct ko_run *run = p->run;
	struct ko_board *board = run->comm->board;
	int rank = run->comm->rank;

	for (int part = 0; part < run->comm->nranks; part++) {
		struct ko_piece q = piece(p, part, k);

		if (q.n && (part != rank || needs_own))
			ko_board_write(board, p->len, given_for(p, rank, part),
				       ko_at(run, src, q.first), q.n * run->size);
		if (part != rank)
			board->sent += q.n * run->size;
	}
}

/* dst = the sums of this rank's part of slice k of src, which was given in `turn`. */
static void add_up_slice(const struct slices *p, size_t k, struct ko_turn turn, const void *src,
			 void *dst)
{
	struct ko_run *run = p->run;
	int rank = run->comm->rank;
	struct ko_vectors all = vectors_in(run, turn, p->len);
	struct ko_piece mine = piece(p, rank, k), q = { (size_t)rank * p->step, mine.n };

	count_read(run, q.n);
	if (run->comm->sums == KO_SUMS_TREE)
		ko_tree_add_up(run, &all, q, dst);
	else
		ko_add_up(run, &all, run->desc.coll == KO_REDUCE ? run->desc.root : rank, q,
			  ko_at(run, src, mine.first), dst);
}

/* dst = the sums of slice k, which all ranks gave in this turn. */
static void read_sums(const struct slices *p, size_t k, void *dst)
{
	struct ko_run *run = p->run;
	int nranks = run->comm->nranks;

	for (int r = 0; r < nranks; r++) {
		struct ko_piece q = piece(p, r, k);

		keep(run, ko_at_mut(run, dst, q.first), given_for(p, r, nranks), q.n);
		if (r != run->comm->rank)
			run->comm->board->received += q.n * run->size;
	}
}

/* An all-reduce, or a reduce. In turn k each rank gives slice k, and its part of the sums of the
 * slice before. */
static int reduce_slices(const struct slices *p, const void *src, void *dst)
{
	struct ko_run *run = p->run;
	struct ko_board *board = run->comm->board;
	int rank = run->comm->rank, nranks = run->comm->nranks, rc = 0;
	bool wants = run->desc.coll == KO_ALL_REDUCE || rank == run->desc.root;
	struct ko_turn before = { 0 };

	for (size_t k = 0; rc == 0 && k <= p->count; k++) {
		rc = open_turn(p);
		if (rc < 0)
			break;
		if (k > 0) {
			add_up_slice(p, k - 1, before, src, given_for(p, rank, nranks));
			board->sent += piece(p, rank, k - 1).n * run->size;
		}
		if (k < p->count)
			write_slice(p, k, src, run->comm->sums == KO_SUMS_TREE);
		ko_turn_publish(run);
		if (k < p->count || wants)
			rc = ko_turn_wait_all(run);
		if (rc == 0 && k > 0 && wants)
			read_sums(p, k - 1, dst);
		before = board->turn;
		ko_turn_end(run);
	}
	return rc;
}

static int reduce_scatter_slices(const struct slices *p, const void *src, void *dst)
{
	struct ko_run *run = p->run;
	size_t own = piece(p, run->comm->rank, 0).first;
	bool needs_own = needs_own_copy(run, ko_at(run, src, own), dst);
	int rc = 0;

	for (size_t k = 0; rc == 0 && k < p->count; k++) {
		rc = open_turn(p);
		if (rc < 0)
			break;
		write_slice(p, k, src, needs_own);
		ko_turn_publish(run);
		rc = ko_turn_wait_all(run);
		if (rc == 0)
			add_up_slice(p, k, run->comm->board->turn, src,
				     ko_at_mut(run, dst, k * p->step));
		ko_turn_end(run);
	}
	return rc;
}

static int all_gather_slices(const struct slices *p, const void *src, void *dst)
{
	struct ko_run *run = p->run;
	int rank = run->comm->rank, nranks = run->comm->nranks, rc = 0;

	for (size_t k = 0; rc == 0 && k < p->count; k++) {
		struct ko_piece q = piece(p, rank, k);

		ko_board_take_rooms(run->comm->board, p->len);
		rc = write_cell(run, ko_at(run, src, k * p->step), q.n);
		if (rc == 0)
			keep(run, ko_at_mut(run, dst, q.first), ko_at(run, src, k * p->step), q.n);
		if (rc == 0)
			rc = ko_turn_wait_all(run);
		for (int i = 1; rc == 0 && i < nranks; i++) {
			int r = ko_ring_back(&run->comm->ring, rank, i);

			q = piece(p, r, k);
			take_block(run, r, q.n, (struct ko_piece){ 0, q.n },
				   ko_at_mut(run, dst, q.first));
		}
		ko_turn_end(run);
	}
	return rc;
}

static int give_slice(const struct slices *p, size_t k, const void *src, void *dst)
{
	struct ko_run *run = p->run;
	struct ko_piece q = piece(p, 0, k);
	int rc = write_cell(run, ko_at(run, src, q.first), q.n);

	if (rc < 0)
		return rc;
	keep(run, ko_at_mut(run, dst, q.first), ko_at(run, src, q.first), q.n);
	return k + 1 < p->count ? ko_turn_wait_all(run) : 0;
}

static int take_slice(const struct slices *p, size_t k, void *dst)
{
	struct ko_run *run = p->run;
	struct ko_piece q = piece(p, 0, k);
	int root = run->desc.root, rc = ko_turn_wait(run, root);

	if (rc == 0 && k + 1 < p->count)
		rc = write_cell(run, NULL, 0);
	if (rc == 0)
		take_block(run, root, q.n, (struct ko_piece){ 0, q.n },
			   ko_at_mut(run, dst, q.first));
	return rc;
}

/* In each turn but the last the others report that they have read what came before. Root goes on
 * when all have reported, and they report when they see what root gives: so all are done with the
 * turn before the last. */
static int broadcast_slices(const struct slices *p, const void *src, void *dst)
{
	struct ko_run *run = p->run;
	int rc = 0;

	for (size_t k = 0; rc == 0 && k < p->count; k++) {
		ko_board_take_rooms(run->comm->board, p->len);
		rc = run->comm->rank == run->desc.root ? give_slice(p, k, src, dst)
						       : take_slice(p, k, dst);
		ko_turn_end(run);
	}
	return rc;
}

static int run_slices(struct ko_run *run, const void *src, void *dst)
{
	const struct slices p = cut(run);

	switch ((enum ko_coll)run->desc.coll) {
	case KO_REDUCE_SCATTER: return reduce_scatter_slices(&p, src, dst);
	case KO_ALL_GATHER: return all_gather_slices(&p, src, dst);
	case KO_BROADCAST: return broadcast_slices(&p, src, dst);
	default: return reduce_slices(&p, src, dst);
	}
}

static struct ko_model slices_model(const struct ko_run *run)
{
	enum ko_coll coll = (enum ko_coll)run->desc.coll;
	const struct kolo_comm *c = run->comm;
	struct ko_plan parts = ko_plan_in_blocks(&run->plan, coll, c->nranks);
	size_t others = (size_t)c->nranks - 1, all = parts.count;
	size_t own = ko_plan_block(&parts, c->rank).n;

	if (coll != KO_ALL_REDUCE && coll != KO_REDUCE)
		return model(run);
	return (struct ko_model){
		all,
		others * own + (coll == KO_ALL_REDUCE || c->rank == run->desc.root ? all - own : 0)
	};
}

/* Bytes of the vector that go over the board in a turn: as many as fit of each part. */
static double bytes_a_turn(enum ko_coll coll, const struct ko_costs *costs, int nranks)
{
	int parts = coll == KO_BROADCAST ? 1 : nranks;

	return (double)costs->board_room * parts / (double)spans(coll, nranks);
}

/* Turns from which on the ring is better if ranks share processors. Its vectors stay in the caches
 * longer (why: D172 in comm/DECISIONS.md). */
static double most_turns(enum ko_coll coll)
{
	switch (coll) {
	case KO_ALL_GATHER: return HUGE_VAL;
	case KO_REDUCE_SCATTER: return 1;
	default: return 4;
	}
}

/* Where each rank has a processor, long vectors go round the ring, in which all write and read at a
 * time. Sums of few slices are shared out in any case; but two ranks do that round the ring in as
 * few hops. */
static uint64_t slices_end(enum ko_coll coll, const struct ko_costs *costs, int nranks,
			   bool windows)
{
	enum { LEAST = 64 }; /* bytes of a rank's part in a turn */
	bool is_shared = nranks > 2 && (coll == KO_ALL_REDUCE || coll == KO_REDUCE);
	double turns = costs->share > 1 ? most_turns(coll) : (is_shared ? 2 : 0), bytes;

	(void)windows;
	if (coll == KO_BARRIER || !turns || costs->board_room / spans(coll, nranks) < LEAST)
		return 0;
	bytes = turns * bytes_a_turn(coll, costs, nranks);
	return bytes < 1e18 ? (uint64_t)bytes + 1 : UINT64_MAX;
}

static struct ko_estimate slices_cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
				      bool windows)
{
	double n = nranks, crossings, turns = 1;

	switch (coll) {
	case KO_REDUCE_SCATTER: crossings = 2 * (n - 1) / n; break;
	case KO_ALL_GATHER: crossings = 1; break;
	case KO_BROADCAST: crossings = 2; break;
	default: /* a reduction to all or to root */
		turns = 2;
		crossings = 1 + 2 * (n - 1) / n;
		break;
	}
	return (struct ko_estimate){ turns * costs->turn_ns,
				     crossings / rate(costs, windows) +
					     costs->turn_ns / bytes_a_turn(coll, costs, nranks) };
}

static bool takes_slices(const struct ko_run *run)
{
	return fitting(run) > 0;
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

const struct ko_algorithm_ops ko_slices_ops = {
	.name = "slices",
	.what = "over the board in several turns; each rank adds up a part",
	.sums = 1 << KO_SUMS_RING | 1 << KO_SUMS_TREE,
	.reach = KO_SHARED_MEMORY,
	.end = slices_end,
	.cost = slices_cost,
	.takes = takes_slices,
	.run = run_slices,
	.model = slices_model,
};
