/* How the board's memory is divided (ko_board_view), rooms of long payloads (ko_board_take_rooms),
 * prefetch (ko_board_expect), and pauses before others' cells are looked at (ko_board_pauses). */
#include "comm/memory/board.h"

#include "comm/sys/thread.h"

enum {
	LINE = 64,
	SMALL = sizeof(((struct ko_cell *)0)->small),
	MAX_ALL = 4 << 20,      /* bytes of all ranks' rooms */
	ROOM = 1 << 10,         /* bytes of a room, if there are not too many ranks */
	NARROW = 4,             /* narrow, long payloads walk through this part of the rooms */
	NARROW_LEAST = 64 << 10 /* bytes, else through all */
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

static void note_rooms(struct ko_board *board, size_t first, size_t end, uint64_t seq)
{
	for (size_t k = first; k < end; k++)
		board->had[k] = seq;
}

/* The walk begins anew, so no room may have been used later than a lower one. */
static void note_newest(struct ko_board *board)
{
	uint64_t newest = 0;

	for (size_t k = 0; k < KO_BOARD_ROOMS; k++)
		newest = board->had[k] > newest ? board->had[k] : newest;
	note_rooms(board, 0, KO_BOARD_ROOMS, newest);
}

void ko_board_set_way(struct ko_board *board, int nranks, enum ko_board_way way, double limit)
{
	size_t rooms = rooms_of(nranks), narrow = rooms / NARROW;
	bool is_narrow = way == KO_BOARD_NARROW && narrow * board->room_len >= NARROW_LEAST;

	board->way = way;
	ko_writer_set(&board->writer, way == KO_BOARD_STREAMED ? KO_STREAMING : KO_ORDINARY, limit);
	board->span = is_narrow ? narrow : rooms;
	board->before = ko_min_size(narrow, board->span);
	board->fresh = board->span;
	note_newest(board);
}

struct ko_board ko_board_view(void *memory, int nranks)
{
	enum { PAUSE_NS = 40 };
	struct ko_board board = { .memory = memory,
				  .rank_len = rank_len(nranks),
				  .room_len = room_len(nranks),
				  .pauses = ko_is_intel() ? ko_relaxes_in(PAUSE_NS) : 0 };

	ko_board_set_way(&board, nranks, KO_BOARD_NARROW, 0);
	ko_board_end_turn(&board, 0);
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

/* Up to a page a payload has one of its own, if there are enough: a walk through all rooms for the
 * first time is slow, and shall soon be over (why: D206 in comm/DECISIONS.md). */
static size_t rooms_for(const struct ko_board *board, size_t bytes)
{
	enum { PAGE = 4 }; /* rooms */
	size_t least = ko_min_size(board->span / KO_BOARD_CELLS, PAGE);
	size_t rooms = (bytes + board->room_len - 1) / board->room_len;

	return rooms < least ? least : rooms;
}

void ko_board_take_rooms(struct ko_board *board, size_t bytes)
{
	if (bytes <= board->room_len || bytes <= SMALL)
		return;
	board->rooms = rooms_for(board, bytes);
	board->turn.room = place(board, board->rooms);
	board->fresh -= ko_min_size(board->fresh, board->rooms);
}

void ko_board_leave_rooms(struct ko_board *board, uint64_t seq)
{
	size_t first = board->turn.room, end = first + board->rooms, before = board->before;
	bool again = first >= before; /* it began at the top again */

	if (before < board->span) /* what it has passed by is as the last one left it */
		note_rooms(board, again ? 0 : end, before, board->had[before]);
	note_rooms(board, first, end, seq);
	board->before = first;
}

int ko_board_pauses(const struct ko_board *board, size_t bytes)
{
	enum { LONG = 2 << 10, LONGEST = 4 << 10 };

	if (board->pauses && bytes > SMALL && bytes < LONGEST)
		return board->pauses;
	return bytes >= LONG;
}

/* Is the cell's line prefetched, too? A rank that waits takes it back at its next look, which comes
 * before the turn if the payload takes a while (why: D215 in comm/DECISIONS.md). */
static bool expects_cell(size_t bytes)
{
	enum { SHORT = 64, LONG = 1 << 10 };

	return bytes <= SHORT || bytes > LONG || !ko_is_intel();
}

void ko_board_expect(const struct ko_board *board, int rank, size_t bytes)
{
	struct ko_turn turn = board->turn;

	if (expects_cell(bytes))
		ko_expect_to_write(ko_board_cell(board, turn.number, rank), LINE);
	if (bytes <= SMALL)
		return;
	if (bytes > board->room_len) {
		if (board->writer.stores == KO_STREAMING)
			return;
		turn.room = place(board, rooms_for(board, bytes));
	}
	ko_expect_to_write(ko_board_payload(board, turn, rank, bytes), bytes);
}
