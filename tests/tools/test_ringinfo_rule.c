/* ringinfo's rule for slow edges, on fixed numbers, and the marks that it leaves in text and
 * JSON. */
#include "tests/lib/t.h"

#include "tools/ringinfo/ringinfo.h"

#include <stdlib.h>
#include <string.h>

/* One letter for each edge: s where it is slow. */
static void check_marks(const struct edge *edges, int n, const char *expected)
{
	struct edge best = find_best(edges, n);

	for (int i = 0; i < n; i++)
		CHECK(edge_is_slow(&edges[i], &best) == (expected[i] == 's'));
}

static void slow_is_far_behind_the_best(void **state)
{
	(void)state;
	/* Of two, and where half of all are slow. */
	check_marks((struct edge[]){ { 10, 0.3, 0 }, { 4.9, 0.3, 0 } }, 2, "-s");
	check_marks((struct edge[]){ { 10, 0.3, 0 }, { 10, 1.1, 0 } }, 2, "-s");
	check_marks(
		(struct edge[]){ { 9, 0.26, 0 }, { 9, 2.19, 0 }, { 9, 0.24, 0 }, { 9, 2.27, 0 } },
		4, "-s-s");
	/* The best rate and the best latency may be those of two edges. */
	check_marks((struct edge[]){ { 10, 30, 0 }, { 4, 10, 0 }, { 6, 15, 0 } }, 3, "ss-");
}

static void half_and_twice_are_not_slow(void **state)
{
	(void)state;
	check_marks((struct edge[]){ { 10, 3, 0 }, { 5, 6, 0 } }, 2, "--");
	check_marks((struct edge[]){ { 7, 3, 0 } }, 1, "-");
}

static void latencies_of_less_than_a_microsecond_are_alike(void **state)
{
	(void)state;
	check_marks((struct edge[]){ { 10, 0.1, 0 }, { 10, 1.0, 0 }, { 10, 1.01, 0 } }, 3, "--s");
}

/* What `print` makes of a probed ring of 3 ranks, of which the second edge is slow; on 2
 * processors. */
static char *print_ring(void (*print)(FILE *out, const struct machine *m, const struct job *j))
{
	struct node root = { .what = "machine", .count = 1, .name = "here" };
	struct machine machine = { .root = &root };
	struct edge edges[] = { { 10, 0.5, 0 }, { 4, 0.5, 0 }, { 9, 0.6, 0 } };
	struct rank_facts ranks[3] = { 0 };
	struct job job = { .environment.launcher = "kolo",
			   .nranks = 3,
			   .order = "ring",
			   .ranks = ranks,
			   .probed = true,
			   .edges = edges };
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	CHECK(out != NULL);
	for (int r = 0; r < 3; r++) {
		ranks[r] = (struct rank_facts){ .next = (r + 1) % 3, .processors = 2 };
		strcpy(ranks[r].host, "here");
		strcpy(ranks[r].stores, "ordinary");
	}
	print(out, &machine, &job);
	fclose(out);
	return text;
}

static void a_slow_edge_is_marked_in_the_text(void **state)
{
	char *text = print_ring(print_text);

	(void)state;
	CHECK(strstr(text, "      0 -> 1        10.00       0.50   ordinary\n"));
	CHECK(strstr(text, "      1 -> 2         4.00       0.50   ordinary  slow\n"));
	CHECK(strstr(text, "      2 -> 0         9.00       0.60   ordinary\n"));
	CHECK(strstr(text, "  best              10.00       0.50\n"));
	CHECK(strstr(
		text,
		"\n  3 ranks share 2 processors: rates and latencies are the scheduler's too\n"));
	free(text);
}

static void a_slow_edge_is_marked_in_json(void **state)
{
	char *text = print_ring(print_json);

	(void)state;
	CHECK(strstr(text, "\"best_GBs\": 10.000000, \"best_us\": 0.500"));
	CHECK(strstr(
		text,
		"\"to\": 1, \"rate_GBs\": 10.000000, \"latency_us\": 0.500, \"wrong\": 0, \"slow\": false"));
	CHECK(strstr(
		text,
		"\"to\": 2, \"rate_GBs\": 4.000000, \"latency_us\": 0.500, \"wrong\": 0, \"slow\": true"));
	CHECK(strstr(
		text,
		"\"to\": 0, \"rate_GBs\": 9.000000, \"latency_us\": 0.600, \"wrong\": 0, \"slow\": false"));
	free(text);
}

static void a_crowd_is_told_once_for_each_host(void **state)
{
	struct rank_facts ranks[5];
	struct job job = { .nranks = 5, .ranks = ranks };

	(void)state;
	for (int r = 0; r < 5; r++) {
		ranks[r] = (struct rank_facts){ .processors = 2 };
		strcpy(ranks[r].host, r == 1 || r == 2 ? "roomy" : "full");
	}
	CHECK(count_crowd(&job, 0) == 3);
	for (int r = 1; r < 5; r++)
		CHECK(count_crowd(&job, r) == 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(slow_is_far_behind_the_best),
	cmocka_unit_test(half_and_twice_are_not_slow),
	cmocka_unit_test(latencies_of_less_than_a_microsecond_are_alike),
	cmocka_unit_test(a_slow_edge_is_marked_in_the_text),
	cmocka_unit_test(a_slow_edge_is_marked_in_json),
	cmocka_unit_test(a_crowd_is_told_once_for_each_host),
};

T_MAIN(tests)
