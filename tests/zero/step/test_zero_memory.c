/* Regions (zero/base/memory.h): what a tensor leaves goes to another one, or, where the system does
 * not move it, is new; and who is not open traps. */
#include "tests/lib/t.h"
#include "zero/base/memory.h"

#include <string.h>
#include <sys/mman.h>

enum { PAGES = 3 };

struct three {
	struct zero_region a, b, passage;
	size_t page;
};

static struct three open_three(void)
{
	struct three x = { .page = zero_whole_pages(1) };

	CHECK(zero_region_reserve(&x.a, PAGES * x.page, "a") == 0);
	CHECK(zero_region_reserve(&x.b, PAGES * x.page, "b") == 0);
	CHECK(zero_region_reserve(&x.passage, 2 * PAGES * x.page, "passage") == 0);
	CHECK(zero_region_open(&x.a, "a") == 0);
	for (size_t i = 0; i < x.a.len; i++)
		CHECK(x.a.base[i] == 0);
	memset(x.a.base, 7, x.a.len);
	return x;
}

static void close_three(struct three *x)
{
	zero_region_free(&x->a);
	zero_region_free(&x->b);
	zero_region_free(&x->passage);
	CHECK(!x->a.base && !x->b.base);
}

static bool is_filled(const struct zero_region *r, char byte)
{
	for (size_t i = 0; i < r->len; i++)
		if (r->base[i] != byte)
			return false;
	return true;
}

static void memory_goes_from_one_to_another_and_back(void **state)
{
	struct three x = open_three();

	(void)state;
	for (int k = 0; k < 10; k++) {
		struct zero_region *from = k % 2 ? &x.b : &x.a, *to = k % 2 ? &x.a : &x.b;

		CHECK(t_is_there(from->base) && !t_is_there(to->base));
		zero_region_close(from);
		CHECK(!t_is_there(from->base));
		CHECK(zero_region_move(to, from, &x.passage, "to") == 0);
		CHECK(t_is_there(to->base) && !t_is_there(from->base));
		/* Without a passage the system does not move memory. */
		CHECK(is_filled(to, x.passage.base ? 7 : 0));
	}
	close_three(&x);
}

static void who_comes_again_has_what_it_left(void **state)
{
	struct three x = open_three();

	(void)state;
	zero_region_close(&x.a);
	CHECK(!t_is_there(x.a.base));
	CHECK(zero_region_move(&x.a, &x.a, &x.passage, "a") == 0);
	CHECK(is_filled(&x.a, 7) && x.passage.base);
	zero_region_close(&x.a);
	zero_region_drop(&x.a);
	CHECK(!t_is_there(x.a.base));
	CHECK(zero_region_open(&x.a, "a") == 0 && is_filled(&x.a, 0));
	close_three(&x);
}

/* A page that the kernel keeps apart, which older ones don't move. */
static void pages_may_be_treated_apart(void **state)
{
	struct three x = open_three();

	(void)state;
	CHECK(madvise(x.a.base + x.page, x.page, MADV_DONTFORK) == 0);
	zero_region_close(&x.a);
	CHECK(zero_region_move(&x.b, &x.a, &x.passage, "b") == 0);
	CHECK(is_filled(&x.b, x.passage.base ? 7 : 0) && !t_is_there(x.a.base));
	zero_region_close(&x.b);
	CHECK(zero_region_move(&x.a, &x.b, &x.passage, "a") == 0);
	CHECK(is_filled(&x.a, x.passage.base ? 7 : 0) && !t_is_there(x.b.base));
	close_three(&x);
}

/* Nothing is at from's addresses. */
static void what_can_not_move_is_new(void **state)
{
	struct three x = open_three();
	char *passage = x.passage.base;

	(void)state;
	munmap(x.a.base, x.a.len);
	CHECK(zero_region_move(&x.b, &x.a, &x.passage, "b") == 0);
	CHECK(is_filled(&x.b, 0) && !x.passage.base);
	CHECK(zero_region_reserve(&x.a, x.b.len, "another") == 0);
	memset(x.b.base, 8, x.b.len);
	zero_region_close(&x.b);
	CHECK(zero_region_move(&x.a, &x.b, &x.passage, "a") == 0);
	CHECK(is_filled(&x.a, 0) && !t_is_there(x.b.base));
	munmap(passage, x.passage.len);
	close_three(&x);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(memory_goes_from_one_to_another_and_back),
	cmocka_unit_test(who_comes_again_has_what_it_left),
	cmocka_unit_test(pages_may_be_treated_apart),
	cmocka_unit_test(what_can_not_move_is_new),
};

T_MAIN(tests)
