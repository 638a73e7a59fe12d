/* The board: memory that all ranks of a host share, for vectors too small to go round a ring. Each
 * rank writes its vector into a cell of its own. The ranks that need it read it there.
 * comm/coll/board.c has the collectives that use it, turns.h the waiting.
 *
 * A turn is one use of the board by all ranks. Each rank has 16 cells and uses the next one in each
 * turn. Three would be safe. More are faster: a cell that the first-level cache has dropped before
 * it is used again moves faster between cores.
 *
 * A cell has a head and room for a payload. The heads of a rank lie in a row, and the rooms behind
 * them. A long payload goes on in the rooms of the next cells: it takes 2, 4 or 8, and begins at a
 * multiple of that. Turns have numbers, from 1; one that takes so many cells uses up as many
 * numbers. All ranks know the length of the longest payload in a turn, so they number alike. */
#ifndef COMM_MEMORY_BOARD_H
#define COMM_MEMORY_BOARD_H

#include "comm/reduce/reduce.h"

#include <stdatomic.h>

enum {
	KO_BOARD_CELLS = 16,
	KO_BOARD_LONG = 8 /* that a turn takes at most; the next one finds as many others */
};

/* A cell's head. A small payload lies in the same cache line as the turn, so one transfer brings
 * both. The next head is two lines away: some processors fetch pairs of them. */
struct ko_cell {
	/* The turn that the rest belongs to. Written last, by the owner alone, and only if it gives
	 * something */
	_Alignas(128) _Atomic uint64_t turn;
	uint32_t tag;           /* of the operation */
	union ko_scalar scalar; /* of the owner's reducer */
	char small[40];         /* the payload, if it fits */
};

/* One rank's view of the board. */
struct ko_board {
	char *memory;
	size_t rank_len;               /* bytes of all cells of a rank */
	size_t cell_room;              /* bytes of payload in a cell's room; 0: small ones only */
	uint64_t turn;                 /* number of the turn, from 1; the same on all ranks */
	uint64_t cells;                /* that it takes */
	uint64_t safe;                 /* seq up to which all ranks have finished all operations */
	uint64_t used[KO_BOARD_CELLS]; /* seq of the operation that wrote this rank's cell */
	uint64_t sent;                 /* bytes written into own cells */
	uint64_t received;             /* bytes read in others' cells */
};

/* Bytes of all cells of all ranks; 0 for one rank. */
size_t ko_board_len(int nranks);

/* Bytes of payload that fit into a cell, and into as many as one turn may take. */
size_t ko_board_cell_room(int nranks);
size_t ko_board_room(int nranks);

/* The view of a new board in ko_board_len zeroed bytes that all ranks map. They begin where a cell
 * may. */
struct ko_board ko_board_view(void *memory, int nranks);

/* The cell that `rank` uses in a turn. */
static inline struct ko_cell *ko_board_cell(const struct ko_board *board, uint64_t turn, int rank)
{
	char *heads = board->memory + (size_t)rank * board->rank_len;

	return (struct ko_cell *)(void *)heads + turn % KO_BOARD_CELLS;
}

/* Where a payload of so many bytes lies that `rank` gives in a turn. */
static inline char *ko_board_payload(const struct ko_board *board, uint64_t turn, int rank,
				     size_t bytes)
{
	struct ko_cell *cell = ko_board_cell(board, turn, rank);
	char *rooms = (char *)(cell - turn % KO_BOARD_CELLS + KO_BOARD_CELLS);

	return bytes <= sizeof(cell->small) ? cell->small
					    : rooms + turn % KO_BOARD_CELLS * board->cell_room;
}

/* This rank is about to write a payload of so many bytes into its cell of this turn. Prefetches all
 * lines of it for writing at once. Stores alone would wait for one line after the other. */
void ko_board_expect(const struct ko_board *board, int rank, size_t bytes);

/* Numbers the turn, in which no rank gives more than so many bytes, at most ko_board_room. If they
 * are no more than ko_board_cell_room this need not be called. */
void ko_board_take_cells(struct ko_board *board, size_t bytes);

#endif
