/* How cells lie in the board's memory (ko_board_view), and their prefetch (ko_board_expect). */
#include "comm/memory/board.h"

enum {
	LINE = sizeof(struct ko_cell),
	MAX_ALL = 1 << 20 /* bytes of payload in all cells: with 2 ranks 32 KiB in each cell */
};

/* Bytes of a cell: a cache line for the turn, then whole lines for the payload. With very many
 * ranks there is only the first line. */
static size_t cell_len(int nranks)
{
	return LINE + MAX_ALL / KO_BOARD_CELLS / (size_t)nranks / LINE * LINE;
}

size_t ko_board_len(int nranks)
{
	return nranks == 1 ? 0 : (size_t)nranks * KO_BOARD_CELLS * cell_len(nranks);
}

size_t ko_board_room(int nranks)
{
	size_t large = cell_len(nranks) - LINE;

	return large ? large : sizeof(((struct ko_cell *)0)->small);
}

struct ko_board ko_board_view(void *memory, int nranks)
{
	return (struct ko_board){ .memory = memory,
				  .cell_len = cell_len(nranks),
				  .room = ko_board_room(nranks),
				  .turn = 1 };
}

void ko_board_expect(const struct ko_board *board, int rank, size_t bytes)
{
	struct ko_cell *cell = ko_board_cell(board, board->turn, rank);
	const char *payload = ko_cell_payload(cell, bytes);

	ko_expect_to_write(cell, sizeof(*cell));
	if (payload != cell->small)
		ko_expect_to_write(payload, bytes);
}
