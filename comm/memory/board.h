/* The board: memory that all ranks of a host share, for vectors too small to go round a ring. Each
 * rank writes its vector into a cell of its own. The ranks that need it read it there.
 * comm/coll/board.c has the collectives that use it, turns.h the waiting.
 *
 * A turn is one use of the board by all ranks. Turns have numbers, from 1. Each rank has 16 cells
 * and uses the next one in each turn. Three would be safe. More are faster: a cell that the
 * first-level cache has dropped before it is used again moves faster between cores.
 *
 * A payload that does not fit into the cell itself lies in rooms behind the cells. If one room is
 * enough, it is that with the cell's number. Long ones take as many rooms as they need, or a
 * page, and walk through all of the span. How wide that is depends on what the caches do (enum
 * ko_board_way). All ranks know the length of the longest payload in a turn, so they agree where
 * everyone's lies. */
#ifndef COMM_MEMORY_BOARD_H
#define COMM_MEMORY_BOARD_H

#include "comm/plan/algorithm.h"
#include "comm/reduce/reduce.h"
#include "comm/transport/stores.h"

#include <stdatomic.h>

enum {
	KO_BOARD_CELLS = 16,
	KO_BOARD_ROOMS = 2048 /* of a rank, at most */
};

/* A cell. A small payload lies in the same cache line as the turn, so one transfer brings both.
 * The next cell is two lines away: some processors fetch pairs of them. */
struct ko_cell {
	/* The turn that the rest belongs to. Written last, by the owner alone, and only if it gives
	 * something */
	_Alignas(128) _Atomic uint64_t turn;
	uint32_t tag;           /* of the operation */
	union ko_scalar scalar; /* of the owner's reducer */
	char small[40];         /* the payload, if it fits */
};

/* A turn: its number, and where a payload begins that has rooms. */
struct ko_turn {
	uint64_t number;
	size_t room;
};

/* One rank's view of the board. */
struct ko_board {
	char *memory;
	size_t rank_len; /* bytes of all that a rank has */
	size_t room_len; /* bytes of a room; 0: there are no rooms. A long payload has more */
	size_t span;     /* rooms that long payloads walk through */
	enum ko_board_way way;
	struct ko_writer writer; /* of this rank's long payloads */
	struct ko_turn turn;     /* the next one, or the one under way; the same on all ranks */
	size_t rooms;            /* that its payload has, if it is a long one; else 0 */
	size_t before;           /* the room before which the next long payload ends */
	size_t fresh;  /* rooms to come that have not been used yet: the system gives them memory */
	int pauses;    /* beside a short payload (ko_board_pauses); 0 but on Intel's processors */
	uint64_t safe; /* seq up to which all ranks have finished all operations */
	uint64_t sent; /* bytes given by this rank */
	uint64_t received; /* bytes read of what others gave */
	/* seq of the last operation that wrote a cell, or its room alone */
	uint64_t wrote[KO_BOARD_CELLS];
	/* seq of the last operation whose long payload had a room. Payloads walk downwards, so that
	 * no room has a larger one than a lower room. A room that is passed by gets that of the
	 * room above. */
	uint64_t had[KO_BOARD_ROOMS];
};

/* Bytes of all that the ranks have; 0 for one rank. */
size_t ko_board_len(int nranks);

/* The view of a new board in ko_board_len zeroed bytes that all ranks map. They begin where a cell
 * may. The way is KO_BOARD_NARROW. */
struct ko_board ko_board_view(void *memory, int nranks);

/* "narrow", "wide" or "streamed". */
const char *ko_board_way_name(enum ko_board_way way);

/* Long payloads of the next turns are written so. All ranks call it between the same turns.
 * `limit` is that of the rank's stores (stores.h). */
void ko_board_set_way(struct ko_board *board, int nranks, enum ko_board_way way, double limit);

/* Bytes of payload that a turn may have: the next one finds other rooms. */
size_t ko_board_room(const struct ko_board *board);

/* Which of a rank's cells is used in the turn of this number, and which room if one is enough. */
static inline size_t ko_board_place(uint64_t number)
{
	return ~number % KO_BOARD_CELLS;
}

/* The cell that `rank` uses in the turn of this number. */
static inline struct ko_cell *ko_board_cell(const struct ko_board *board, uint64_t number, int rank)
{
	char *cells = board->memory + (size_t)rank * board->rank_len;

	return (struct ko_cell *)(void *)cells + ko_board_place(number);
}

/* Where a payload of so many bytes lies that `rank` gives in a turn. */
static inline char *ko_board_payload(const struct ko_board *board, struct ko_turn turn, int rank,
				     size_t bytes)
{
	struct ko_cell *cell = ko_board_cell(board, turn.number, rank);
	char *rooms = (char *)(cell - ko_board_place(turn.number) + KO_BOARD_CELLS);

	return bytes <= sizeof(cell->small) ? cell->small : rooms + turn.room * board->room_len;
}

/* This rank is about to give a payload of so many bytes in this turn. Prefetches its first lines
 * for writing at once. Stores alone would wait for one line after the other. */
void ko_board_expect(const struct ko_board *board, int rank, size_t bytes);

/* How many pauses of the processor (ko_relax) a rank that has written so many bytes makes before it
 * looks at others' cells. A look takes a cell's line away from the rank that is about to write it
 * (why: D213, D215 in comm/DECISIONS.md). */
int ko_board_pauses(const struct ko_board *board, size_t bytes);

/* Finds rooms for the turn, in which no rank gives more than so many bytes, at most ko_board_room.
 * If no payload is a long one this need not be called. */
void ko_board_take_rooms(struct ko_board *board, size_t bytes);

/* The later one of two operations, but not `seq`, if that is b. */
static inline uint64_t ko_board_later(uint64_t a, uint64_t b, uint64_t seq)
{
	return b > a && b != seq ? b : a;
}

/* All that was in this rank's cell and rooms of this turn before operation `seq` was written by the
 * operation that this returns, or by earlier ones; 0: nothing was. */
static inline uint64_t ko_board_last_use(const struct ko_board *board, uint64_t seq)
{
	size_t first = board->turn.room, end = first + board->rooms;
	uint64_t last = ko_board_later(0, board->wrote[ko_board_place(board->turn.number)], seq);

	last = ko_board_later(last, board->had[first], seq);
	for (size_t k = first; k < end && k < KO_BOARD_CELLS; k++)
		last = ko_board_later(last, board->wrote[k], seq);
	return last;
}

/* Operation `seq` writes this rank's cell. */
static inline void ko_board_note_cell(struct ko_board *board, uint64_t seq)
{
	board->wrote[ko_board_place(board->turn.number)] = seq;
}

/* Operation `seq` leaves the turn's rooms, if it had some, whether this rank wrote them or not. */
void ko_board_leave_rooms(struct ko_board *board, uint64_t seq);

/* The turn of operation `seq` is over: the next one begins. */
static inline void ko_board_end_turn(struct ko_board *board, uint64_t seq)
{
	if (board->rooms)
		ko_board_leave_rooms(board, seq);
	board->turn.number++;
	board->turn.room = ko_board_place(board->turn.number);
	board->rooms = 0;
}

/* Writes into a payload of `all` bytes, of this rank. */
static inline void ko_board_write(const struct ko_board *board, size_t all, void *out,
				  const void *src, size_t len)
{
	if (all > board->room_len && board->writer.stores == KO_STREAMING)
		ko_stream_copy(out, src, len);
	else
		ko_copy_expected(out, src, len);
}

#endif
