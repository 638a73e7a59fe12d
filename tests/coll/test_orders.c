/* The orders of additions "tree" and "grid": the bits of their definitions by every algorithm,
 * wherever buffers are, for many shapes; however a vector is cut; and what is refused. */
#include "tests/lib/t.h"
#include "tests/lib/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the tests pass to all ranks: an algorithm's name, NULL for the best; memory from kolo_alloc
 * with the algorithm direct; or a transport. */
#define ALLOC "alloc"
#define TCP   "tcp"

static bool is(const struct t_rank *r, const char *how)
{
	return r->arg && strcmp(r->arg, how) == 0;
}

static struct kolo_comm *tree_comm(struct t_rank *r)
{
	struct kolo_comm_attr attr = { .order = "tree", .timeout_s = T_PATIENCE / 2 };

	if (is(r, TCP))
		attr.transport = TCP;
	else
		attr.algorithm = is(r, ALLOC) ? "direct" : r->arg;
	return t_comm_with(r, attr);
}

static struct t_setup set_up(struct t_rank *r)
{
	struct t_setup setup = { .c = tree_comm(r) };

	CHECK(strcmp(kolo_comm_order(setup.c), "tree") == 0);
	for (int k = 0; k < 2 && is(r, ALLOC); k++)
		CHECK(kolo_alloc(setup.c, T_ROOM, &setup.room[k]) == 0);
	return setup;
}

static void tear_down(struct t_setup *setup)
{
	struct kolo_stats s;

	CHECK(kolo_comm_stats(setup->c, &s) == 0);
	CHECK(s.sent_bytes == s.model_sent_bytes && s.received_bytes == s.model_received_bytes);
	CHECK(kolo_free(setup->c, setup->room[0]) == 0);
	kolo_comm_destroy(setup->c);
}

/* ---- The definition -------------------------------------------------------------------------- */

static void try_types_and_ops(struct t_setup *setup, unsigned share)
{
	size_t n = (size_t)kolo_comm_nranks(setup->c), counts[] = { 0, 1, n, n + 1, 67 };

	for (int type = 0; type < VALUES_NTYPES; type++)
		for (int op = 0; op <= T_PREMUL; op++)
			for (size_t k = 0; k < ARRAY_LEN(counts); k++)
				t_try_all_calls(setup,
						(struct t_trial){ .type = (enum kolo_type)type,
								  .op = op,
								  .n = counts[k] },
						share);
}

static void all_types_and_ops(struct t_rank *r)
{
	struct t_setup setup = set_up(r);

	try_types_and_ops(&setup, 3);
	tear_down(&setup);
}

/* The larger ones take several chunks of the board, windows and CMA, and several rounds of
 * messages. */
static void try_counts(struct t_setup *setup, const size_t *counts, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		t_try_all_calls(
			setup, (struct t_trial){ .type = KOLO_F32, .op = KOLO_SUM, .n = counts[k] },
			6);
		t_try_all_calls(
			setup,
			(struct t_trial){ .type = KOLO_BF16, .op = KOLO_AVG, .n = counts[k] }, 6);
		t_try_all_calls(
			setup, (struct t_trial){ .type = KOLO_F64, .op = T_PREMUL, .n = counts[k] },
			6);
	}
}

static void many_counts(struct t_rank *r)
{
	struct t_setup setup = set_up(r);
	size_t counts[] = { 509, 4099, 1024 * (size_t)r->nranks + 1, 20011 };

	try_counts(&setup, counts, ARRAY_LEN(counts));
	tear_down(&setup);
}

static void for_numbers_of_ranks(t_rank_fn *fn)
{
	static char *const hows[] = { NULL,     "board",  "exchange", "doubling", "pairwise",
				      "direct", "slices", ALLOC,      TCP };

	for (int n = 1; n <= 9; n++) {
		if (n == 6 || (n > 3 && n != 5 && t_is_slow()) || (n != 3 && t_is_slowest()))
			continue;
		for (size_t k = 0; k < ARRAY_LEN(hows); k++)
			if (n < 6 || k == 1 || k == 3 || k == 4)
				t_processes(n, fn, hows[k]);
	}
}

static void every_type_and_op_has_the_bits_of_the_tree(void **state)
{
	(void)state;
	for_numbers_of_ranks(all_types_and_ops);
}

static void every_count_has_the_bits_of_the_tree(void **state)
{
	(void)state;
	for_numbers_of_ranks(many_counts);
}

static void ranks_may_be_threads(void **state)
{
	(void)state;
	t_threads(3, all_types_and_ops, NULL);
	t_threads(5, all_types_and_ops, "pairwise");
	t_threads(3, all_types_and_ops, "direct");
}

/* ---- Grid ------------------------------------------------------------------------------------ */

/* The number of ranks, and how they are in groups: "4x2", for KOLO_SHAPE; or by turns. */
struct grid_case {
	int groups, size;
	bool by_turns; /* rank r is in group r modulo groups, and groups count backwards */
	const char *transport, *algorithm;
	int nslots;
};

static struct t_setup set_up_grid(struct t_rank *r)
{
	const struct grid_case *g = r->arg;
	struct kolo_comm_attr attr = { .order = "grid",
				       .timeout_s = T_PATIENCE / 2,
				       .transport = g->transport,
				       .algorithm = g->algorithm,
				       .nslots = g->nslots,
				       .slot_len = g->nslots == 2 ? 4096 : 0 };
	struct t_setup setup = { 0 };
	char shape[32];

	snprintf(shape, sizeof(shape), "%dx%d", g->groups, g->size);
	setenv("KOLO_SHAPE", shape, 1);
	if (g->by_turns)
		attr.group = (uint64_t)(g->groups - r->rank % g->groups);
	setup.c = t_comm_with(r, attr);
	CHECK(strcmp(kolo_comm_order(setup.c), "grid") == 0);
	CHECK(kolo_comm_groups(setup.c) == g->groups);
	for (int k = 0; k < r->nranks; k++) {
		int group = g->by_turns ? g->groups - 1 - k % g->groups : k / g->size;
		int number = g->by_turns ? k / g->groups : k % g->size;

		CHECK(kolo_comm_group_rank(setup.c, group, number) == k);
	}
	CHECK(kolo_comm_group_rank(setup.c, g->groups, 0) == -1);
	CHECK(kolo_comm_group_rank(setup.c, 0, g->size) == -1);
	return setup;
}

/* Element i of the part from rank `from` for rank `to`. */
static uint16_t part_of(int from, int to, size_t i)
{
	return (uint16_t)(from * 4099 + to * 257 + (int)i);
}

/* Leaders do small ones if they are asked for; others are messages. */
static void try_all_to_all(struct t_setup *setup, const struct t_rank *r, bool leaders)
{
	static const size_t counts[] = { 1, 7, 100, 3000 };
	size_t n = (size_t)r->nranks, most = counts[ARRAY_LEN(counts) - 1];
	uint64_t before = kolo_algorithm_ops(setup->c, "shares"), done = 0;
	uint16_t *src = malloc(n * most * 2), *dst = malloc(n * most * 2);

	CHECK(src && dst);
	for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
		size_t count = counts[k];

		for (size_t i = 0; i < n * count; i++)
			src[i] = part_of(r->rank, (int)(i / count), i % count);
		memset(dst, 0xff, n * count * 2);
		CHECK(kolo_all_to_all(setup->c, src, dst, count, KOLO_F16, NULL) == 0);
		for (size_t i = 0; i < n * count; i++)
			CHECK(dst[i] == part_of((int)(i / count), r->rank, i % count));
	}
	done = kolo_algorithm_ops(setup->c, "shares") - before;
	CHECK(done == (leaders ? ARRAY_LEN(counts) : 0));
	free(src);
	free(dst);
}

static void grid_types_and_ops(struct t_rank *r)
{
	const struct grid_case *g = r->arg;
	struct t_setup setup = set_up_grid(r);
	bool leaders = g->algorithm && strcmp(g->algorithm, "shares") == 0;

	try_types_and_ops(&setup, 6);
	if (g->algorithm)
		try_all_to_all(&setup, r, leaders);
	tear_down(&setup);
}

/* The larger ones take several rounds, and several slots for the pieces of a rail. */
static void grid_counts(struct t_rank *r)
{
	struct t_setup setup = set_up_grid(r);
	size_t n = (size_t)r->nranks, counts[4] = { 701, 4099, 20011, 9000 * n + 1 };
	const char *algorithm = ((const struct grid_case *)r->arg)->algorithm;
	bool center = algorithm && strcmp(algorithm, "center") == 0;

	/* Leaders do short vectors alone; a center sends what TCP does not take in down another
	 * tree. */
	try_counts(&setup, counts, center ? 3 : algorithm ? 2 : 4);
	CHECK(!center || kolo_algorithm_ops(setup.c, "center") > 0);
	tear_down(&setup);
}

static void every_shape_has_the_bits_of_the_grid(void **state)
{
	static const struct grid_case cases[] = {
		{ .groups = 1, .size = 4 },
		{ .groups = 2, .size = 2 },
		{ .groups = 4, .size = 1 },
		{ .groups = 3, .size = 3 },
		{ .groups = 2, .size = 4 },
		{ .groups = 5, .size = 2 },
		{ .groups = 1, .size = 1 },
		{ .groups = 2, .size = 3, .by_turns = true, .nslots = 2 },
		{ .groups = 3, .size = 2, .by_turns = true, .transport = TCP },
		{ .groups = 2, .size = 2, .algorithm = "partials" },
		{ .groups = 3, .size = 3, .algorithm = "partials" },
		{ .groups = 3, .size = 2, .by_turns = true, .algorithm = "partials" },
		{ .groups = 9, .size = 1, .algorithm = "partials" },
		{ .groups = 10, .size = 1, .by_turns = true, .algorithm = "partials" },
		{ .groups = 3, .size = 3, .algorithm = "center" },
		{ .groups = 10, .size = 1, .by_turns = true, .algorithm = "center" },
		{ .groups = 4, .size = 1, .algorithm = "shares" },
		{ .groups = 5, .size = 2, .algorithm = "shares" },
		{ .groups = 2, .size = 3, .by_turns = true, .algorithm = "shares" },
		{ .groups = 3, .size = 2, .by_turns = true, .algorithm = "shares" },
	};

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
		int n = cases[k].groups * cases[k].size;

		if (n > 4 && n != 6 && t_is_slow())
			continue;
		t_processes(n, grid_types_and_ops, (void *)&cases[k]);
		t_processes(n, grid_counts, (void *)&cases[k]);
	}
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static void fill_floats(float *x, size_t n, int rank)
{
	uint64_t seed = (uint64_t)rank + 1;

	for (size_t i = 0; i < n; i++)
		x[i] = (float)((double)(t_random(&seed) >> 11) / (double)(1ULL << 52) - 1.0);
}

/* dst = the sum of x, in so many calls, by turns of each kind. */
static void sum_in_pieces(struct kolo_comm *c, const float *x, float *dst, size_t n, size_t pieces)
{
	size_t counts[16] = { 0 }, nranks = (size_t)kolo_comm_nranks(c);

	for (size_t k = 0; k < pieces; k++) {
		size_t from = n * k / pieces, len = n * (k + 1) / pieces - from, own = 0;

		if (k % 3 == 0) {
			CHECK(kolo_all_reduce(c, x + from, dst + from, len, KOLO_F32, KOLO_SUM,
					      NULL) == 0);
			continue;
		}
		if (k % 3 == 1) {
			int root = (int)(k % nranks);

			CHECK(kolo_reduce(c, x + from, dst + from, len, KOLO_F32, KOLO_SUM, root,
					  NULL) == 0);
			CHECK(kolo_broadcast(c, dst + from, dst + from, len, KOLO_F32, root,
					     NULL) == 0);
			continue;
		}
		/* Uneven blocks: one empty, one with the rest. */
		for (size_t b = 0; b < nranks; b++)
			counts[b] = b == 0 ? 0 : b + 1 < nranks ? len / nranks / 2 + b % 2 : 0;
		for (size_t b = 0; b + 1 < nranks; b++)
			own += counts[b];
		counts[nranks - 1] = len - own;
		own = 0;
		for (int b = 0; b < kolo_comm_rank(c); b++)
			own += counts[b];
		CHECK(kolo_reduce_scatter_v(c, x + from, dst + from + own, counts, KOLO_F32,
					    KOLO_SUM, NULL) == 0);
		CHECK(kolo_all_gather_v(c, dst + from + own, dst + from, counts, KOLO_F32, NULL) ==
		      0);
	}
}

static void in_pieces(struct t_rank *r)
{
	enum { N = 40001 };
	static const size_t pieces[] = { 1, 3, 17, 1009 };
	struct kolo_comm *c = tree_comm(r);
	float *x = malloc(4 * N), *first = malloc(4 * N), *y = malloc(4 * N);

	CHECK(x && first && y);
	fill_floats(x, N, r->rank);
	sum_in_pieces(c, x, first, N, 1);
	for (size_t k = 0; k < ARRAY_LEN(pieces); k++) {
		memset(y, 0, 4 * N);
		sum_in_pieces(c, x, y, N, pieces[k]);
		CHECK(memcmp(first, y, 4 * N) == 0);
	}
	free(x);
	free(first);
	free(y);
	kolo_comm_destroy(c);
}

static void a_vector_may_be_cut_anywhere(void **state)
{
	(void)state;
	for (int n = 2; n <= (t_is_slowest() ? 2 : 7); n += t_is_slow() ? 3 : 1) {
		t_processes(n, in_pieces, NULL);
		t_processes(n, in_pieces, "pairwise");
		t_processes(n, in_pieces, "doubling");
		t_processes(n, in_pieces, "slices");
		t_processes(n, in_pieces, n % 2 ? "direct" : TCP);
	}
}

/* ---- Attributes ------------------------------------------------------------------------------ */

static void try_attr(struct t_rank *r, struct kolo_comm_attr attr, int code, const char *text)
{
	struct kolo_comm *c;

	attr.id = &r->id;
	attr.rank = r->rank;
	attr.nranks = r->nranks;
	CHECK(kolo_comm_create(&attr, &c) == code && !c);
	CHECK(strcmp(kolo_last_error(), text) == 0);
}

static void unknown(struct t_rank *r)
{
	try_attr(r, (struct kolo_comm_attr){ .order = "hedge" }, KOLO_ENOTSUP,
		 "no order of additions called 'hedge'; this build has: ring, tree, grid");
	setenv("KOLO_ORDER", "bush", 1);
	try_attr(
		r, (struct kolo_comm_attr){ 0 }, KOLO_EINVAL,
		"KOLO_ORDER=bush: no order of additions called 'bush'; this build has: ring, tree, grid");
	setenv("KOLO_ORDER", "grid", 1);
	setenv("KOLO_SHAPE", "1x2", 1);
	try_attr(r, (struct kolo_comm_attr){ 0 }, KOLO_EINVAL,
		 "KOLO_SHAPE=1x2: '1x2' is no shape of 1 ranks: want GROUPSxRANKS, groups times "
		 "ranks of each");
	try_attr(r, (struct kolo_comm_attr){ .group = 65537 }, KOLO_EINVAL,
		 "group 65537: want 1 + a number below 65536, or 0");
}

static void uneven_groups(struct t_rank *r)
{
	try_attr(
		r, (struct kolo_comm_attr){ .order = "grid", .group = r->rank == 1 ? 9 : 4 },
		KOLO_ENOTSUP,
		"the order 'grid' needs groups (hosts) of equally many ranks: that of rank 0 has 2, "
		"that of rank 1 has 1");
}

static void a_group_for_some(struct t_rank *r)
{
	try_attr(r, (struct kolo_comm_attr){ .order = "grid", .group = r->rank == 1 }, KOLO_EINVAL,
		 "rank 1 says to which group it belongs, and rank 0 does not: KOLO_SHAPE and "
		 "attr->group must be set on all ranks or none");
}

static void ring_by_force(struct t_rank *r)
{
	char text[128];

	snprintf(text, sizeof(text), "rank %d: algorithm 'ring' does not add in the order 'tree'",
		 r->rank);
	try_attr(r, (struct kolo_comm_attr){ .order = "tree", .algorithm = "ring" }, KOLO_ENOTSUP,
		 text);
}

static void pairwise_by_force(struct t_rank *r)
{
	char text[128];

	snprintf(text, sizeof(text),
		 "rank %d: algorithm 'pairwise' does not add in the order 'ring'", r->rank);
	try_attr(r, (struct kolo_comm_attr){ .algorithm = "pairwise" }, KOLO_ENOTSUP, text);
}

/* The attribute counts, then the environment; and rank 0's value for all. */
static void inherited(struct t_rank *r)
{
	struct kolo_comm *c, *half;

	setenv("KOLO_ORDER", r->rank == 0 ? "tree" : "ring", 1);
	c = t_comm(r);
	CHECK(strcmp(kolo_comm_order(c), "tree") == 0);
	setenv("KOLO_ORDER", "ring", 1);
	CHECK(kolo_comm_split(c, r->rank % 2, 0, &half) == 0);
	CHECK(strcmp(kolo_comm_order(half), "tree") == 0 && kolo_comm_groups(half) == 0);
	kolo_comm_destroy(half);
	kolo_comm_destroy(c);
}

/* Children have the groups of their ranks, if these were given. */
static void inherited_groups(struct t_rank *r)
{
	struct kolo_comm_attr attr = { .order = "grid", .group = (uint64_t)r->rank / 2 + 1 };
	struct kolo_comm *c = t_comm_with(r, attr), *half;

	CHECK(kolo_comm_groups(c) == 2);
	CHECK(kolo_comm_split(c, r->rank / 2, 0, &half) == 0);
	CHECK(strcmp(kolo_comm_order(half), "grid") == 0 && kolo_comm_groups(half) == 1);
	kolo_comm_destroy(half);
	CHECK(kolo_comm_split(c, r->rank % 2, -r->rank, &half) == 0);
	CHECK(kolo_comm_groups(half) == 2 && kolo_comm_group_rank(half, 0, 0) == 1);
	kolo_comm_destroy(half);
	kolo_comm_destroy(c);
}

static void counted(struct t_rank *r)
{
	struct kolo_comm *c = tree_comm(r);
	struct kolo_stats before, after;
	int x[100] = { 0 };

	CHECK(kolo_comm_stats(c, &before) == 0 && kolo_algorithm_ops(c, r->arg) == 0);
	CHECK(kolo_all_reduce(c, x, x, 100, KOLO_I32, KOLO_SUM, NULL) == 0);
	CHECK(kolo_comm_stats(c, &after) == 0 && after.ops == before.ops + 1);
	CHECK(kolo_algorithm_ops(c, r->arg) == 1);
	CHECK(kolo_algorithm_ops(c, "ring") == after.ring_ops && after.ring_ops == 0);
	CHECK(kolo_algorithm_ops(c, "magic") == 0 && kolo_algorithm_ops(c, NULL) == 0);
	kolo_comm_destroy(c);
}

static void operations_are_counted_by_algorithm(void **state)
{
	(void)state;
	t_processes(3, counted, "pairwise");
	t_processes(3, counted, "doubling");
	t_processes(3, counted, "board");
	t_processes(3, counted, "slices");
}

static void orders_are_refused_by_name(void **state)
{
	(void)state;
	t_processes(1, unknown, NULL);
	t_processes(2, ring_by_force, NULL);
	t_processes(2, pairwise_by_force, NULL);
	t_processes(3, uneven_groups, NULL);
	t_processes(2, a_group_for_some, NULL);
}

static void rank_0_says_which_and_children_have_it(void **state)
{
	(void)state;
	t_processes(4, inherited, NULL);
	t_processes(4, inherited_groups, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_type_and_op_has_the_bits_of_the_tree),
	cmocka_unit_test(every_count_has_the_bits_of_the_tree),
	cmocka_unit_test(ranks_may_be_threads),
	cmocka_unit_test(every_shape_has_the_bits_of_the_grid),
	cmocka_unit_test(a_vector_may_be_cut_anywhere),
	cmocka_unit_test(operations_are_counted_by_algorithm),
	cmocka_unit_test(orders_are_refused_by_name),
	cmocka_unit_test(rank_0_says_which_and_children_have_it),
};

T_MAIN(tests)
