/* The board: shared memory of all ranks of a host for messages that are too small to go round a ring. Each rank
 * writes its vector into a cell of its own, and whoever needs it reads it there. What is done with them is in
 * oneshot.c.
 *
 * A rank's cells are used in turn, one for each operation. There are more than safety needs (three would do): cells
 * that have been pushed out of the first-level caches before their turn comes again move faster between cores. */
#ifndef COMM_MEMORY_BOARD_H
#define COMM_MEMORY_BOARD_H

#include "comm/reduce/reduce.h"

#include <stdatomic.h>

enum { KO_BOARD_CELLS = 16 };

/* A small payload lies in the turn's own line and comes with it in one transfer. */
struct ko_cell {
	/* The turn that the rest belongs to. Its owner alone writes it, and only when it gives something. */
	_Alignas(64) _Atomic uint64_t turn;
	uint32_t tag;           /* of the operation */
	union ko_scalar scalar; /* of the owner's reducer */
	char small[40];
	char large[];
};

/* One rank's view. */
struct ko_board {
	char *memory;
	size_t cell_len; /* bytes from a cell to the next, */
	size_t room;     /* and those that fit into one */
	uint64_t turn;   /* counts operations on the board from 1; the same on all ranks */
	uint64_t safe;   /* all ranks have finished the operation with this seq and those before */
	uint64_t used[KO_BOARD_CELLS]; /* seq of the operation that this rank's cell was last used for */
	uint64_t sent, received;       /* bytes written into own cells, read in others' */
};

/* Bytes of all cells. */
size_t ko_board_len(int nranks);

/* Bytes that fit into a cell. */
size_t ko_board_room(int nranks);

/* The view of ko_board_len zeroed bytes that all ranks map. */
struct ko_board ko_board_view(void *memory, int nranks);

/* The cell of `rank` for a turn. */
static inline struct ko_cell *ko_board_cell(const struct ko_board *board, uint64_t turn, int rank)
{
	size_t index = (size_t)rank * KO_BOARD_CELLS + turn % KO_BOARD_CELLS;

	return (struct ko_cell *)(void *)(board->memory + index * board->cell_len);
}

/* This rank is about to write a payload of so many bytes into its cell of this turn: has the lines brought to this core, to
 * be written, all at once. Stores would wait for them one after the other. */
void ko_board_expect(const struct ko_board *board, int rank, size_t bytes);

/* Where a payload of so many bytes lies. */
static inline char *ko_cell_payload(struct ko_cell *cell, size_t bytes)
{
	return bytes <= sizeof(cell->small) ? cell->small : cell->large;
}

#endif
