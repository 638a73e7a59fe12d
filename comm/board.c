/* See board.h. */
#include "board.h"

enum {
	LINE = sizeof(struct ko_cell),
	MAX_ALL =
		1
		<< 20, /* bytes of the room in all cells: 32 KiB in each of two ranks, less for each of more */
	MAX_EXPECTED = 4 << 10 /* bytes of a payload: further ones come as fast by themselves */
};

/* A line for the turn, and the room; where there are very many ranks the turn's line has to do. */
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
	return (struct ko_board){ .memory = memory, .cell_len = cell_len(nranks), .turn = 1 };
}

struct ko_cell *ko_board_cell(const struct ko_board *board, uint64_t turn, int rank)
{
	size_t index = (size_t)rank * KO_BOARD_CELLS + turn % KO_BOARD_CELLS;

	return (struct ko_cell *)(board->memory + index * board->cell_len);
}

char *ko_cell_payload(struct ko_cell *cell, size_t bytes)
{
	return bytes <= sizeof(cell->small) ? cell->small : cell->large;
}

/* Asks for a line as its only owner; __builtin_prefetch would ask for a copy to read on most x86. */
static inline void fetch_to_write(const char *line)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*line));
#else
	__builtin_prefetch(line, 1);
#endif
}

void ko_board_expect(const struct ko_board *board, int rank, size_t bytes)
{
	struct ko_cell *cell = ko_board_cell(board, board->turn, rank);
	const char *payload = ko_cell_payload(cell, bytes);

	fetch_to_write((const char *)cell);
	for (size_t at = 0; payload != cell->small && at < bytes && at < MAX_EXPECTED; at += LINE)
		fetch_to_write(payload + at);
}
