/* The board: memory that all ranks of a host share, for vectors too small to go round a ring. Each
 * rank writes its vector into a cell of its own. The ranks that need it read it there.
 * comm/coll/board.c has the collectives that use it, turns.h the waiting.
 *
 * A turn is one operation on the board. Each rank has 16 cells and uses the next one in each turn.
 * Three would be safe. More are faster: a cell that the first-level cache has dropped before it is
 * used again moves faster between cores. */
#ifndef COMM_MEMORY_BOARD_H
#define COMM_MEMORY_BOARD_H

#include "comm/reduce/reduce.h"

#include <stdatomic.h>

enum { KO_BOARD_CELLS = 16 };

/* A cell. A small payload lies in the same cache line as the turn, so one transfer brings both. */
struct ko_cell {
	/* The turn that the rest belongs to. Written last, by the owner alone, and only if it gives
	 * something */
	_Alignas(64) _Atomic uint64_t turn;
	uint32_t tag;           /* of the operation */
	union ko_scalar scalar; /* of the owner's reducer */
	char small[40];         /* the payload, if it fits */
	char large[];           /* the payload, if it does not */
};

/* One rank's view of the board. */
struct ko_board {
	char *memory;
	size_t cell_len;               /* bytes from a cell to the next */
	size_t room;                   /* bytes of payload that fit into a cell */
	uint64_t turn;                 /* number of the turn, from 1; the same on all ranks */
	uint64_t safe;                 /* seq up to which all ranks have finished all operations */
	uint64_t used[KO_BOARD_CELLS]; /* seq of the operation that wrote this rank's cell */
	uint64_t sent;                 /* bytes written into own cells */
	uint64_t received;             /* bytes read in others' cells */
};

/* Bytes of all cells of all ranks; 0 for one rank. */
size_t ko_board_len(int nranks);

/* Bytes of payload that fit into a cell. */
size_t ko_board_room(int nranks);

/* The view of a new board in ko_board_len zeroed bytes that all ranks map. */
struct ko_board ko_board_view(void *memory, int nranks);

/* The cell that `rank` uses in a turn. */
static inline struct ko_cell *ko_board_cell(const struct ko_board *board, uint64_t turn, int rank)
{
	size_t index = (size_t)rank * KO_BOARD_CELLS + turn % KO_BOARD_CELLS;

	return (struct ko_cell *)(void *)(board->memory + index * board->cell_len);
}

/* This rank is about to write a payload of so many bytes into its cell of this turn. Prefetches all
 * lines of it for writing at once. Stores alone would wait for one line after the other. */
void ko_board_expect(const struct ko_board *board, int rank, size_t bytes);

/* Where in its cell a payload of so many bytes lies. */
static inline char *ko_cell_payload(struct ko_cell *cell, size_t bytes)
{
	return bytes <= sizeof(cell->small) ? cell->small : cell->large;
}

#endif
