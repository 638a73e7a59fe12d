/* The counters of a lane in shared memory, whose two ends are in this process: they are valid after
 * each line, and refused when one is wrong. */
#include "comm/p2p/lane.h"
#include "tests/lib/t.h"

#include <stdlib.h>

struct ends {
	struct ko_lane *lane;
	struct ko_lane_end from, to;
};

/* The line before `next` was the last one. */
static struct ends make_ends(uint32_t next)
{
	struct ko_lane *lane = aligned_alloc(64, KO_LANE_LEN);
	struct ends e = { lane,
			  { .lane = lane, .sends = true, .next = next, .taken = next - 1 },
			  { .lane = lane, .next = next } };

	CHECK(lane != NULL);
	*lane = (struct ko_lane){ .taken = next - 1 };
	return e;
}

static bool are_valid(const struct ends *e)
{
	return ko_lane_is_valid(&e->from) && ko_lane_is_valid(&e->to);
}

static void send_lines(struct ends *e, int n)
{
	while (n-- > 0) {
		CHECK(ko_lane_acquire(&e->from, false) && are_valid(e));
		ko_lane_commit(&e->from);
		CHECK(are_valid(e));
	}
}

static void take_lines(struct ends *e, int n)
{
	while (n-- > 0) {
		CHECK(ko_lane_peek(&e->to) && are_valid(e));
		ko_lane_take(&e->to);
		CHECK(are_valid(e));
	}
}

static void counters_are_valid_after_each_line(void **state)
{
	static const uint32_t begins[] = { 1, UINT32_MAX - 20 }; /* numbers wrap around */

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(begins); k++) {
		struct ends e = make_ends(begins[k]);

		send_lines(&e, KO_LANE_LINES);
		CHECK(!ko_lane_acquire(&e.from, false));
		take_lines(&e, 10);
		send_lines(&e, 10);
		CHECK(!ko_lane_acquire(&e.from, false));
		take_lines(&e, KO_LANE_LINES);
		CHECK(!ko_lane_peek(&e.to));
		free(e.lane);
	}
}

static void a_wrong_counter_is_refused(void **state)
{
	struct ends e = make_ends(1);

	(void)state;
	send_lines(&e, 5);
	take_lines(&e, 3);
	e.lane->taken += 1; /* the receiver has taken three */
	CHECK(ko_lane_is_valid(&e.from) && !ko_lane_is_valid(&e.to));
	e.lane->taken += 2; /* five were sent */
	CHECK(!ko_lane_is_valid(&e.from));
	e.lane->taken -= 3;
	e.from.taken = 4; /* more than the receiver has taken */
	CHECK(!ko_lane_is_valid(&e.from));
	e.from.taken = 5 - KO_LANE_LINES - 1; /* lines were written again too early */
	CHECK(!ko_lane_is_valid(&e.from));
	e.from.taken = 0;
	CHECK(are_valid(&e));
	e.lane->copied = 1; /* nobody has claimed it */
	CHECK(!ko_lane_is_valid(&e.from) && !ko_lane_is_valid(&e.to));
	e.lane->claimed = 2;
	CHECK(are_valid(&e));
	e.to.pieces = 2; /* one is not copied yet */
	CHECK(ko_lane_is_valid(&e.from) && !ko_lane_is_valid(&e.to));
	free(e.lane);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(counters_are_valid_after_each_line),
	cmocka_unit_test(a_wrong_counter_is_refused),
};

T_MAIN(tests)
