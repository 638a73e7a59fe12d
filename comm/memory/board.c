/* How cells lie in the board's memory (ko_board_view), their prefetch (ko_board_expect), and turns
 * that take several (ko_board_take_cells). */
#include "comm/memory/board.h"

enum {
	LINE = 64,
	SMALL = sizeof(((struct ko_cell *)0)->small),
	MAX_ALL = 1 << 20 /* bytes of payload in all cells: with 2 ranks 32 KiB in each cell */
};

/* Whole lines for the payload, so that no two cells share one. With very many ranks there are
 * none. */
static size_t cell_room(int nranks)
{
	return MAX_ALL / KO_BOARD_CELLS / (size_t)nranks / LINE * LINE;
}

static size_t rank_len(int nranks)
{
	return KO_BOARD_CELLS * (sizeof(struct ko_cell) + cell_room(nranks));
}

size_t ko_board_len(int nranks)
{
	return nranks == 1 ? 0 : (size_t)nranks * rank_len(nranks);
}

size_t ko_board_cell_room(int nranks)
{
	size_t room = cell_room(nranks);

	return room ? room : SMALL;
}

size_t ko_board_room(int nranks)
{
	size_t room = cell_room(nranks);

	return room ? KO_BOARD_LONG * room : SMALL;
}

struct ko_board ko_board_view(void *memory, int nranks)
{
	return (struct ko_board){ .memory = memory,
				  .rank_len = rank_len(nranks),
				  .cell_room = cell_room(nranks),
				  .turn = 1,
				  .cells = 1 };
}

/* Cells for a payload of so many bytes: a power of two, KO_BOARD_LONG at most. */
static uint64_t cells_for(const struct ko_board *board, size_t bytes)
{
	uint64_t cells = 1;

	while (bytes > SMALL && bytes > cells * board->cell_room && cells < KO_BOARD_LONG)
		cells *= 2;
	return cells;
}

/* The number of the next turn, if it takes so many cells. */
static uint64_t number(const struct ko_board *board, uint64_t cells)
{
	return (board->turn + cells - 1) & ~(cells - 1);
}

void ko_board_take_cells(struct ko_board *board, size_t bytes)
{
	board->cells = cells_for(board, bytes);
	board->turn = number(board, board->cells);
}

void ko_board_expect(const struct ko_board *board, int rank, size_t bytes)
{
	uint64_t turn = number(board, cells_for(board, bytes));
	struct ko_cell *cell = ko_board_cell(board, turn, rank);

	ko_expect_to_write(cell, LINE);
	if (bytes > SMALL)
		ko_expect_to_write(ko_board_payload(board, turn, rank, bytes), bytes);
}
