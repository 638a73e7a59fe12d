/* Writes this rank's cell (ko_turn_give) and waits for the others' (ko_turn_wait). */
#include "comm/memory/turns.h"

#include "comm/core/wait.h"
#include "comm/memory/board.h"

#include <string.h>

/* A cell that is waited for. */
struct look {
	const struct ko_run *run;
	int rank; /* whose it is */
};

/* An operation that another rank must finish first. */
struct past {
	const struct kolo_comm *comm;
	int rank;
	uint64_t seq;
};

static uint64_t finished(const struct kolo_comm *c, int rank)
{
	/* Pairs with the release in ko_roster_finish: the rank has read what it needed. */
	return atomic_load_explicit(&c->roster->post[rank].finished, memory_order_acquire);
}

static int try_finished(void *what)
{
	const struct past *p = what;

	return finished(p->comm, p->rank) < p->seq ? KO_EAGAIN : 0;
}

static int try_cell(void *what)
{
	const struct look *l = what;
	const struct ko_board *board = l->run->comm->board;
	struct ko_cell *cell = ko_board_cell(board, board->turn.number, l->rank);

	/* Pairs with the release in ko_turn_give: a rank that sees the turn sees the rest. */
	if (atomic_load_explicit(&cell->turn, memory_order_acquire) != board->turn.number)
		return KO_EAGAIN;
	return cell->tag == l->run->tag
		       ? 0
		       : ko_wait_mismatch(l->run->comm, &l->run->desc, l->rank, cell->tag);
}

/* Waits until this rank's cells may be written: all ranks have finished operation `seq`, which used
 * them last. */
static int wait_room(struct ko_run *run, uint64_t seq)
{
	struct kolo_comm *c = run->comm;
	struct past past = { .comm = c, .seq = seq };
	uint64_t least = UINT64_MAX;
	int rc = 0;

	for (; rc == 0 && past.rank < c->nranks; past.rank++) {
		if (past.rank == c->rank)
			continue;
		rc = ko_wait(run, past.rank, "the board", KO_TRACE_ROOM, try_finished, &past);
		least = finished(c, past.rank) < least ? finished(c, past.rank) : least;
	}
	if (rc == 0) /* often more than needed: then the next turns need not ask the ranks */
		c->board->safe = least;
	return rc;
}

/* Of `all` bytes. If nothing comes back from those who read it, memcpy is the faster one: why:
 * D168. */
static inline void write_payload(const struct ko_run *run, size_t all, char *out, const void *src,
				 size_t len)
{
	const struct ko_board *board = run->comm->board;

	if (ko_coll_has_root(run->desc.coll) && board->writer.stores != KO_STREAMING)
		ko_copy_bytes(out, src, len);
	else
		ko_board_write(board, all, out, src, len);
}

/* These two are inline because a small operation consists of little else. */
static inline int open_cells(struct ko_run *run)
{
	const struct ko_board *board = run->comm->board;
	uint64_t last = ko_board_last_use(board, run->desc.seq);

	return last > board->safe ? wait_room(run, last) : 0;
}

static inline void publish(struct ko_run *run)
{
	struct kolo_comm *c = run->comm;
	struct ko_board *board = c->board;
	struct ko_cell *cell = ko_board_cell(board, board->turn.number, c->rank);

	if (run->stores == KO_STREAMING || board->writer.stores == KO_STREAMING)
		ko_stream_fence();
	cell->scalar = run->red.s;
	ko_board_note_cell(board, run->desc.seq);
	cell->tag = run->tag;
	/* Pairs with the acquire in try_cell. */
	atomic_store_explicit(&cell->turn, board->turn.number, memory_order_release);
	ko_bells_ring(c->bells, c->rank, c->nranks);
}

int ko_turn_give(struct ko_run *run, const void *src, size_t len, const void *more, size_t more_len)
{
	struct ko_board *board = run->comm->board;
	char *payload = ko_board_payload(board, board->turn, run->comm->rank, len + more_len);
	int rc = open_cells(run);

	if (rc < 0)
		return rc;
	ko_writer_begin(&board->writer, len + more_len);
	if (len)
		write_payload(run, len + more_len, payload, src, len);
	if (more_len)
		write_payload(run, len + more_len, payload + len, more, more_len);
	ko_writer_end(&board->writer);
	publish(run);
	return 0;
}

int ko_turn_open(struct ko_run *run)
{
	return open_cells(run);
}

void ko_turn_publish(struct ko_run *run)
{
	publish(run);
}

int ko_turn_wait(struct ko_run *run, int rank)
{
	struct look look = { .run = run, .rank = rank };

	return ko_wait(run, rank, "the board", KO_TRACE_DATA, try_cell, &look);
}

int ko_turn_wait_all(struct ko_run *run)
{
	struct kolo_comm *c = run->comm;
	int rc = 0;

	for (int k = 1; rc == 0 && k < c->nranks; k++)
		rc = ko_turn_wait(run, ko_ring_back(&c->ring, c->rank, k));
	if (rc == 0) /* all have begun this operation, so they have finished those before */
		c->board->safe = run->desc.seq - 1;
	return rc;
}

int ko_turn_wait_finished(const struct ko_waiter *waiter, int rank)
{
	struct past past = { .comm = waiter->comm, .rank = rank, .seq = waiter->desc->seq };

	return ko_wait_for(waiter, rank, "the board", KO_TRACE_ROOM, try_finished, &past);
}

void ko_turn_end(struct ko_run *run)
{
	ko_board_end_turn(run->comm->board, run->desc.seq);
}
