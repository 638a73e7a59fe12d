/* See oneshot.h. */
#include "oneshot.h"

#include "watch.h"

/* ---- Waiting -------------------------------------------------------------------------------------------- */

struct look {
	const struct ko_run *run;
	int rank;     /* who is waited for */
	uint64_t seq; /* of the operation that it must have finished */
};

static int try_finished(void *what)
{
	const struct look *l = what;
	const struct ko_post *post = &l->run->comm->roster->post[l->rank];

	/* Pairs with the release in ko_roster_finish: it has read what it needed. */
	return atomic_load_explicit(&post->finished, memory_order_acquire) < l->seq ? KO_EAGAIN : 0;
}

static int try_cell(void *what)
{
	const struct look *l = what;
	const struct ko_board *board = &l->run->comm->board;
	struct ko_cell *cell = ko_board_cell(board, l->rank);

	/* Pairs with the release in write_cell: who sees the turn sees the rest. */
	if (atomic_load_explicit(&cell->turn, memory_order_acquire) != board->turn)
		return KO_EAGAIN;
	return cell->tag == l->run->tag ? 0
					: ko_watch_mismatch(l->run->comm, &l->run->desc, l->rank, cell->tag);
}

/* My cell may be written: all have finished what it was last used for. */
static int wait_room(struct ko_run *run)
{
	struct kolo_comm *c = run->comm;
	struct look look = { .run = run, .seq = c->board.used[c->board.turn % KO_BOARD_CELLS] };
	int rc = 0;

	for (; look.seq > c->board.safe && rc == 0 && look.rank < c->nranks; look.rank++)
		if (look.rank != c->rank)
			rc = ko_wait(run, look.rank, "the board", KO_TRACE_ROOM, try_finished, &look);
	if (rc == 0 && look.seq > c->board.safe)
		c->board.safe = look.seq;
	return rc;
}

/* ---- Cells ---------------------------------------------------------------------------------------------- */

/* n elements in `rank`'s cell. */
static char *payload(const struct ko_run *run, int rank, size_t n)
{
	return ko_cell_payload(ko_board_cell(&run->comm->board, rank), n * run->size);
}

/* `src` may be NULL where n is 0. */
static int write_cell(struct ko_run *run, const void *src, size_t n)
{
	struct kolo_comm *c = run->comm;
	struct ko_cell *cell = ko_board_cell(&c->board, c->rank);
	int rc = wait_room(run);

	if (rc < 0)
		return rc;
	if (n)
		run->copy(payload(run, c->rank, n), src, n, NULL);
	cell->scalar = run->red.s;
	c->board.sent += n * run->size;
	c->board.used[c->board.turn % KO_BOARD_CELLS] = run->desc.seq;
	cell->tag = run->tag;
	/* Pairs with the acquire in try_cell. */
	atomic_store_explicit(&cell->turn, c->board.turn, memory_order_release);
	return 0;
}

static int wait_cell(struct ko_run *run, int rank)
{
	struct look look = { .run = run, .rank = rank };

	return ko_wait(run, rank, "the board", KO_TRACE_DATA, try_cell, &look);
}

static int wait_all_cells(struct ko_run *run)
{
	struct kolo_comm *c = run->comm;
	int rc = 0;

	for (int k = 1; rc == 0 && k < c->nranks; k++)
		rc = wait_cell(run, ko_ring_block(c->rank, c->nranks, k));
	if (rc == 0) /* they have begun this operation, so they have finished those before */
		c->board.safe = run->desc.seq - 1;
	return rc;
}

/* dst = the elements q of all cells, n in each, added in the order of a block that belongs to `owner`. */
static void add_up(struct ko_run *run, int owner, struct ko_piece q, size_t n, void *dst)
{
	int nranks = run->comm->nranks;
	const void *partial = NULL;

	if (q.n == 0)
		return;
	for (int k = 1; k <= nranks; k++) {
		struct ko_cell *cell = ko_board_cell(&run->comm->board, (owner + k) % nranks);
		const void *own = ko_at(run, ko_cell_payload(cell, n * run->size), q.first);

		if (k > 1)
			run->red.combine(dst, partial, own, q.n, &cell->scalar);
		else if (run->red.first != run->copy)
			run->red.first(dst, own, q.n, &cell->scalar);
		partial = k == 1 && run->red.first == run->copy ? own : dst;
	}
	run->red.finish(dst, dst, q.n, &run->red.s);
	run->comm->board.received += (size_t)(nranks - 1) * q.n * run->size;
}

/* ---- The collectives ------------------------------------------------------------------------------------ */

/* Where ranks are added up the own elements are taken from the own cell: dst, which is written before, may be src. */

static int all_reduce(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;
	int rc = write_cell(run, src, n);

	if (rc < 0 || (rc = wait_all_cells(run)) < 0)
		return rc;
	for (int b = 0; b < run->comm->nranks; b++) {
		struct ko_piece q = ko_plan_block(&run->plan, b);

		add_up(run, b, q, n, ko_at_mut(run, dst, q.first));
	}
	return 0;
}

static int reduce_scatter(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;
	int rank = run->comm->rank, rc = write_cell(run, src, n);

	if (rc == 0)
		rc = wait_all_cells(run);
	if (rc == 0)
		add_up(run, rank, ko_plan_block(&run->plan, rank), n, dst);
	return rc;
}

static int all_gather(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.block;
	int rank = run->comm->rank, nranks = run->comm->nranks, rc = write_cell(run, src, n);

	if (rc == 0 && n)
		run->copy(ko_at_mut(run, dst, (size_t)rank * n), src, n, NULL);
	if (rc == 0)
		rc = wait_all_cells(run);
	for (int k = 1; rc == 0 && n && k < nranks; k++) {
		int r = ko_ring_block(rank, nranks, k);

		run->copy(ko_at_mut(run, dst, (size_t)r * n), payload(run, r, n), n, NULL);
		run->comm->board.received += n * run->size;
	}
	return rc;
}

/* Root does not wait for the others. */
static int broadcast(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;
	int root = run->desc.root, rc;
	bool mine = run->comm->rank == root;

	rc = mine ? write_cell(run, src, n) : wait_cell(run, root);
	if (rc < 0 || n == 0)
		return rc;
	run->copy(dst, mine ? src : payload(run, root, n), n, NULL);
	if (!mine)
		run->comm->board.received += n * run->size;
	return 0;
}

/* The others don't wait for root. */
static int reduce(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;
	int rc = write_cell(run, src, n);

	if (rc < 0 || run->comm->rank != run->desc.root)
		return rc;
	rc = wait_all_cells(run);
	if (rc == 0)
		add_up(run, run->desc.root, ko_plan_block(&run->plan, 0), n, dst);
	return rc;
}

static int barrier(struct ko_run *run)
{
	int rc = write_cell(run, NULL, 0);

	return rc < 0 ? rc : wait_all_cells(run);
}

int ko_oneshot(struct ko_run *run, const void *src, void *dst)
{
	struct ko_board *board = &run->comm->board;
	enum ko_coll coll = (enum ko_coll)run->desc.coll;
	int rc;

	switch (coll) {
	case KO_ALL_REDUCE: rc = all_reduce(run, src, dst); break;
	case KO_REDUCE_SCATTER: rc = reduce_scatter(run, src, dst); break;
	case KO_ALL_GATHER: rc = all_gather(run, src, dst); break;
	case KO_BROADCAST: rc = broadcast(run, src, dst); break;
	case KO_REDUCE: rc = reduce(run, src, dst); break;
	default: rc = barrier(run); break;
	}
	board->turn++;
	return rc;
}
