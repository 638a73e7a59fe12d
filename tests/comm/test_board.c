/* Which operation must be finished before a rank writes its cell and rooms of a turn: turns of
 * random lengths on a view of the board, beside a list of who wrote which room last. */
#include "comm/memory/board.h"
#include "tests/lib/t.h"

#include <stdlib.h>
#include <string.h>

enum { TURNS = 20000, LINE = 64 };

/* What the rooms and cells have in them: the operation that wrote them last. All ranks have
 * finished those up to `finished`, because they were waited for. */
struct written {
	uint64_t rooms[KO_BOARD_ROOMS], cells[KO_BOARD_CELLS], finished;
};

/* The rooms that a payload of so many bytes has in this turn. */
static struct ko_piece rooms_of(const struct ko_board *b, size_t bytes)
{
	const char *first = ko_board_payload(b, (struct ko_turn){ b->turn.number, 0 }, 0, LINE);
	const char *payload = ko_board_payload(b, b->turn, 0, bytes);

	if (bytes <= sizeof(((struct ko_cell *)0)->small))
		return (struct ko_piece){ 0, 0 };
	return (struct ko_piece){ (size_t)(payload - first) / b->room_len,
				  (bytes + b->room_len - 1) / b->room_len };
}

/* The last operation before `seq` that wrote what this turn would overwrite. */
static uint64_t overwritten(const struct written *w, const struct ko_board *b, size_t bytes,
			    uint64_t seq)
{
	struct ko_piece q = rooms_of(b, bytes);
	uint64_t last = w->cells[ko_board_place(b->turn.number)];

	last = last == seq ? 0 : last;
	for (size_t k = q.first; k < q.first + q.n; k++)
		last = w->rooms[k] > last && w->rooms[k] != seq ? w->rooms[k] : last;
	return last;
}

static void write_turn(struct written *w, struct ko_board *b, size_t bytes, uint64_t seq)
{
	struct ko_piece q = rooms_of(b, bytes);

	w->cells[ko_board_place(b->turn.number)] = seq;
	for (size_t k = q.first; k < q.first + q.n; k++)
		w->rooms[k] = seq;
	ko_board_note_cell(b, seq);
}

/* As likely short as long. */
static size_t some_bytes(const struct ko_board *b, uint64_t *seed)
{
	size_t most = ko_board_room(b);

	for (uint64_t halves = t_random(seed) % 12; halves > 0 && most > LINE; halves--)
		most /= 2;
	return (size_t)(t_random(seed) % (most + 1));
}

/* An operation of up to five turns of one length, which this rank may only read. */
static void one_operation(struct ko_board *b, struct written *w, uint64_t seq, uint64_t *seed)
{
	size_t bytes = some_bytes(b, seed);
	bool gives = t_random(seed) % 3;

	for (uint64_t turns = 1 + t_random(seed) % 5; turns > 0; turns--) {
		ko_board_take_rooms(b, bytes);
		CHECK(rooms_of(b, bytes).first + rooms_of(b, bytes).n <= b->span);
		if (gives) {
			uint64_t last = ko_board_last_use(b, seq);

			CHECK(last < seq);
			w->finished = last > w->finished ? last : w->finished;
			CHECK(overwritten(w, b, bytes, seq) <= w->finished);
			write_turn(w, b, bytes, seq);
		}
		ko_board_end_turn(b, seq);
	}
}

static struct ko_board *new_board(int nranks, char **memory)
{
	enum { ALIGN = _Alignof(struct ko_cell) };
	struct ko_board *b = malloc(sizeof(*b));

	*memory = aligned_alloc(ALIGN, (ko_board_len(nranks) + ALIGN - 1) / ALIGN * ALIGN);
	CHECK(b && *memory);
	*b = ko_board_view(*memory, nranks);
	return b;
}

static void nothing_is_overwritten_that_may_be_read(void **state)
{
	static const int ranks[] = { 2, 3, 8, 100, 1000 };
	uint64_t seed = t_seed();

	(void)state;
	for (size_t n = 0; n < ARRAY_LEN(ranks); n++) {
		struct written *w = calloc(1, sizeof(*w));
		char *memory;
		struct ko_board *b = new_board(ranks[n], &memory);

		for (uint64_t seq = 1; seq < TURNS; seq++) {
			if (t_random(&seed) % 500 == 0)
				ko_board_set_way(
					b, ranks[n],
					(enum ko_board_way)(t_random(&seed) % KO_BOARD_WAYS), 0);
			one_operation(b, w, seq, &seed);
		}
		free(memory);
		free(b);
		free(w);
	}
}

/* Else each turn would wait for one that is hardly over. Fewer rooms than a page has are not taken;
 * the first ones are cells' too. */
static void turns_of_one_length_take_all_rooms_before_one_again(void **state)
{
	char *memory;
	struct ko_board *b = new_board(2, &memory);

	(void)state;
	for (size_t rooms = 4; rooms <= b->span / 2; rooms++) {
		uint64_t places = b->span / rooms;

		*b = ko_board_view(memory, 2);
		for (uint64_t seq = 1; seq <= 3 * places; seq++) {
			uint64_t cell = seq > KO_BOARD_CELLS ? seq - KO_BOARD_CELLS : 0;
			uint64_t room = seq > places ? seq - places : 0;

			ko_board_take_rooms(b, rooms * b->room_len);
			if (b->turn.room >= KO_BOARD_CELLS)
				CHECK(ko_board_last_use(b, seq) == (cell > room ? cell : room));
			ko_board_note_cell(b, seq);
			ko_board_end_turn(b, seq);
		}
	}
	free(memory);
	free(b);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(nothing_is_overwritten_that_may_be_read),
	cmocka_unit_test(turns_of_one_length_take_all_rooms_before_one_again),
};

T_MAIN(tests)
