/* How the board's memory is divided (ko_board_view), rooms of long payloads (ko_board_take_rooms),
 * and prefetch (ko_board_expect). */
#include "comm/memory/board.h"

enum {
	LINE = 64,
	SMALL = sizeof(((struct ko_cell *)0)->small),
	MAX_ALL = 4 << 20, /* bytes of all ranks' rooms */
	ROOM = 4 << 10,    /* bytes of a room, if there are not too many ranks */
	NARROW = 4         /* narrow, long payloads walk through this part of the rooms */
};

/* A power of two: 16 or more, each of ROOM bytes if possible. */
static size_t rooms_of(int nranks)
{
	size_t rooms = KO_BOARD_ROOMS;

	while (rooms > KO_BOARD_CELLS && rooms * ROOM * (size_t)nranks > MAX_ALL)
		rooms /= 2;
	return rooms;
}

/* Whole lines, so that no two payloads share one. With very many ranks there are none. */
static size_t room_len(int nranks)
{
	size_t len = MAX_ALL / rooms_of(nranks) / (size_t)nranks / LINE * LINE;

	return len < ROOM ? len : ROOM;
}

/* Two neighbours' rooms begin half a page apart: a processor takes a load for one of what it has
 * just stored if both lie in the same place of a page. */
static size_t rank_len(int nranks)
{
	return KO_BOARD_CELLS * sizeof(struct ko_cell) + rooms_of(nranks) * room_len(nranks);
}

size_t ko_board_len(int nranks)
{
	return nranks == 1 ? 0 : (size_t)nranks * rank_len(nranks);
}

size_t ko_board_room(const struct ko_board *board)
{
	return board->room_len ? board->span / 2 * board->room_len : SMALL;
}

const char *ko_board_way_name(enum ko_board_way way)
{
	static const char *const names[] = { "narrow", "wide", "streamed" };

	return names[way];
}

void ko_board_set_way(struct ko_board *board, int nranks, enum ko_board_way way, double limit)
{
	size_t rooms = rooms_of(nranks), narrow = rooms / NARROW;

	board->way = way;
	ko_writer_set(&board->writer, way == KO_BOARD_STREAMED ? KO_STREAMING : KO_ORDINARY, limit);
	board->span = way == KO_BOARD_NARROW && narrow >= KO_BOARD_CELLS ? narrow : rooms;
	board->before = narrow < board->span ? narrow : board->span;
	board->fresh = board->span;
}

struct ko_board ko_board_view(void *memory, int nranks)
{
	struct ko_board board = { .memory = memory,
				  .rank_len = rank_len(nranks),
				  .room_len = room_len(nranks) };

	board.short_len = board.room_len < KO_BOARD_SHORT ? board.room_len : KO_BOARD_SHORT;
	ko_board_set_way(&board, nranks, KO_BOARD_NARROW, 0);
	ko_board_end_turn(&board);
	return board;
}

/* Where the next payload begins, if it has so many rooms: at a multiple of them, so that two of the
 * same length have no room in common. Payloads walk downwards: a core that reads one fetches some
 * lines behind it too, and those must not be the next ones to be written. */
static size_t place(const struct ko_board *board, size_t rooms)
{
	size_t end = board->before / rooms * rooms;

	return (end ? end : board->span / rooms * rooms) - rooms;
}

static size_t rooms_for(const struct ko_board *board, size_t bytes)
{
	return (bytes + board->room_len - 1) / board->room_len;
}

void ko_board_take_rooms(struct ko_board *board, size_t bytes)
{
	if (bytes <= board->short_len || bytes <= SMALL)
		return;
	board->rooms = rooms_for(board, bytes);
	board->turn.room = place(board, board->rooms);
	board->before = board->turn.room;
	board->fresh -= ko_min_size(board->fresh, board->rooms);
}

void ko_board_expect(const struct ko_board *board, int rank, size_t bytes)
{
	struct ko_turn turn = board->turn;

	ko_expect_to_write(ko_board_cell(board, turn.number, rank), LINE);
	if (bytes <= SMALL)
		return;
	if (bytes > board->short_len) {
		if (board->writer.stores == KO_STREAMING)
			return;
		turn.room = place(board, rooms_for(board, bytes));
	}
	ko_expect_to_write(ko_board_payload(board, turn, rank, bytes), bytes);
}
