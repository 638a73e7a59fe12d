/* Properties of the collectives, for 1 to 9 ranks: the sequential result bit for bit, the same in
 * place and out of place, the same on all ranks and for all slot sizes, nothing written beside dst,
 * exact traffic. */
#include "comm/core/comm.h"
#include "comm/memory/board.h"
#include "tests/lib/t.h"
#include "tests/lib/trial.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RANKS = 9 };

/* What the tests pass to all ranks: an algorithm's name, that it runs in memory from kolo_alloc, or
 * a transport's. */
#define ALLOC "alloc"
#define OFI   "ofi"
#define TCP   "tcp"

static bool is(const struct t_rank *r, const char *how)
{
	return r->arg && strcmp(r->arg, how) == 0;
}

/* With small slots, and the algorithm that the test passed, NULL for the best. */
static struct kolo_comm *comm_with_algorithm(struct t_rank *r)
{
	struct kolo_comm_attr attr = { .slot_len = 4096, .timeout_s = T_PATIENCE / 2 };

	if (is(r, OFI) || is(r, TCP))
		attr.transport = r->arg;
	else
		attr.algorithm = is(r, ALLOC) ? "direct" : r->arg;
	return t_comm_with(r, attr);
}

static struct t_setup set_up(struct t_rank *r)
{
	struct t_setup setup = { .c = comm_with_algorithm(r) };

	for (int k = 0; k < 2 && is(r, ALLOC); k++)
		CHECK(kolo_alloc(setup.c, T_ROOM, &setup.room[k]) == 0);
	return setup;
}

static void tear_down(struct t_setup *setup)
{
	CHECK(kolo_free(setup->c, setup->room[0]) == 0);
	kolo_comm_destroy(setup->c); /* and the other room with it */
}

/* ---- Sweeps ---------------------------------------------------------------------------------- */

static void all_types_and_ops(struct t_rank *r)
{
	struct t_setup setup = set_up(r);
	size_t n = (size_t)r->nranks, counts[] = { 0, 1, n, n + 1, 67 };

	for (int type = 0; type < VALUES_NTYPES; type++)
		for (int op = 0; op <= T_PREMUL; op++)
			for (size_t k = 0; k < ARRAY_LEN(counts); k++)
				t_try_all_calls(&setup,
						(struct t_trial){ .type = (enum kolo_type)type,
								  .op = op,
								  .n = counts[k] },
						3);
	tear_down(&setup);
}

static void many_counts(struct t_rank *r)
{
	struct t_setup setup = set_up(r);
	size_t n = (size_t)r->nranks;
	/* Slots hold 1024 f32, 2048 bf16: the larger ones take several rounds, even and uneven
	 * ones. They leave all remainders by 3, so that samples of a third have each call, root and
	 * place with some count. */
	size_t counts[] = { n - 1, 2 * n + 1, 13,           509,  1024,
			    1025,  1024 * n,  1024 * n + 1, 4099, 2048 * n - 1 };

	for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
		t_try_all_calls(
			&setup,
			(struct t_trial){ .type = KOLO_F32, .op = KOLO_SUM, .n = counts[k] }, 3);
		t_try_all_calls(
			&setup,
			(struct t_trial){ .type = KOLO_BF16, .op = KOLO_AVG, .n = counts[k] }, 3);
	}
	tear_down(&setup);
}

static void for_every_number_of_ranks(t_rank_fn *fn)
{
	for (int n = 1; n <= MAX_RANKS; n++) {
		if ((n > 3 && n != 5 && t_is_slow()) || (n != 2 && t_is_slowest()))
			continue;
		if ((n == 2 || n == 8) && t_has_transport(OFI))
			t_processes(n, fn, OFI);
		if (n > 1 && n < 6)
			t_processes(n, fn, TCP);
		t_processes(n, fn, "ring");
		t_processes(n, fn, "board");
		if (n == 2 || n == 5)
			t_processes(n, fn, "exchange");
		if (n == 3 || n == 8)
			t_processes(n, fn, "slices");
		if (n == 4 || n > 5)
			continue;
		t_processes(n, fn, "direct");
		t_processes(n, fn, ALLOC);
	}
}

static void every_type_and_op_equals_the_sequential_result(void **state)
{
	(void)state;
	for_every_number_of_ranks(all_types_and_ops);
}

static void every_count_equals_the_sequential_result(void **state)
{
	(void)state;
	for_every_number_of_ranks(many_counts);
}

static void ranks_may_be_threads(void **state)
{
	(void)state;
	t_threads(1, all_types_and_ops, NULL);
	t_threads(3, all_types_and_ops, "ring");
	t_threads(3, all_types_and_ops, "board");
	t_threads(3, all_types_and_ops, "slices");
	t_threads(3, all_types_and_ops, "exchange");
	t_threads(3, all_types_and_ops, "direct");
	t_threads(3, all_types_and_ops, ALLOC);
}

/* ---- Equalities between calls ---------------------------------------------------------------- */

static void fill_floats(float *x, size_t n, int rank)
{
	uint64_t seed = (uint64_t)rank;

	for (size_t i = 0; i < n; i++)
		x[i] = (float)((double)(t_random(&seed) >> 11) / (double)(1ULL << 52) - 1.0);
}

/* A communicator of the same ranks, with other attributes. */
static struct kolo_comm *sibling(struct t_rank *r, struct kolo_comm *parent,
				 struct kolo_comm_attr attr)
{
	struct t_rank sub = *r;

	if (r->rank == 0)
		CHECK(kolo_id_create(&sub.id) == 0);
	CHECK(kolo_broadcast(parent, &sub.id, &sub.id, sizeof(sub.id), KOLO_U8, 0, NULL) == 0);
	return t_comm_with(&sub, attr);
}

/* The same bits for any slots, algorithm, transport and kind of stores, and from reduce-scatter
 * followed by all-gather. */
static void try_equal_bits(struct t_rank *r, struct kolo_comm *parent, size_t n)
{
	static const struct kolo_comm_attr attrs[] = {
		{ .slot_len = 4096, .nslots = 2, .algorithm = "ring" },
		{ .slot_len = 8192, .nslots = 64 },
		{ .algorithm = "board" },
		{ .algorithm = "exchange" },
		{ .slot_len = 65536, .algorithm = "ring" },
		{ .algorithm = "slices" },
		{ .algorithm = "direct" },
		{ .transport = TCP },
		{ .slot_len = 16384, .transport = OFI }
	};
	size_t block = n / (size_t)r->nranks;
	float *x = malloc(4 * n), *first = malloc(4 * n), *y = malloc(4 * n),
	      *part = malloc(4 * block);

	CHECK(x && first && y && part);
	fill_floats(x, n, r->rank);
	for (size_t k = 0; k < ARRAY_LEN(attrs) - !t_has_transport(OFI); k++) {
		struct kolo_comm *c = sibling(r, parent, attrs[k]);

		if (k == 4)
			ko_writer_set(&c->edges.to->writer, KO_STREAMING, 0); /* for good */
		CHECK(kolo_all_reduce(c, x, k == 0 ? first : y, n, KOLO_F32, KOLO_SUM, NULL) == 0);
		CHECK(k == 0 || memcmp(first, y, 4 * n) == 0);
		CHECK(kolo_reduce_scatter(c, x, part, block, KOLO_F32, KOLO_SUM, NULL) == 0);
		CHECK(kolo_all_gather(c, part, y, block, KOLO_F32, NULL) == 0);
		CHECK(memcmp(first, y, 4 * n) == 0);
		kolo_comm_destroy(c);
	}
	/* The same on all ranks: everyone's bits equal rank 0's. */
	memcpy(y, first, 4 * n);
	CHECK(kolo_broadcast(parent, y, y, n, KOLO_F32, 0, NULL) == 0);
	CHECK(memcmp(first, y, 4 * n) == 0);
	free(x);
	free(first);
	free(y);
	free(part);
}

static void equal_bits(struct t_rank *r)
{
	static const size_t sizes[] = { 11, 501, 4001, 30011 };
	struct kolo_comm *parent = t_comm(r);

	for (size_t k = 0; k < ARRAY_LEN(sizes); k++)
		try_equal_bits(r, parent, sizes[k] / (size_t)r->nranks * (size_t)r->nranks);
	kolo_comm_destroy(parent);
}

static void bits_depend_on_ranks_count_type_and_op_only(void **state)
{
	(void)state;
	for (int n = 2; n <= (t_is_slowest() ? 3 : 7); n++)
		t_processes(n, equal_bits, NULL);
}

/* A communicator keeps some of a call for the next one: calls of a few kinds, in any order, each up
 * to four times one after the other, at the same addresses. */
static void calls_come_again(struct t_rank *r)
{
	static const enum kolo_type types[] = { KOLO_F32, KOLO_I32, KOLO_F64 };
	static const int ops[] = { KOLO_SUM, KOLO_MAX, KOLO_PROD, T_PREMUL };
	struct kolo_comm *c =
		t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = T_PATIENCE / 2 });
	const struct t_setup setup = { .c = c, .room = { malloc(T_ROOM), malloc(T_ROOM) } };
	uint64_t seed = t_seed();

	for (int k = 0; k < 500; k++) {
		const struct t_trial t = { .call = (enum t_call)(t_random(&seed) % T_NCALLS),
					   .type = types[t_random(&seed) % ARRAY_LEN(types)],
					   .op = ops[t_random(&seed) % ARRAY_LEN(ops)],
					   .n = t_random(&seed) % 4,
					   .root = (int)(t_random(&seed) % (unsigned)r->nranks),
					   .in_place = t_random(&seed) % 2 };

		for (int times = (int)(t_random(&seed) % 4); times >= 0; times--)
			t_try(&setup, &t);
	}
	kolo_comm_destroy(c);
	free(setup.room[0]);
	free(setup.room[1]);
}

static void calls_that_come_again_do_the_same(void **state)
{
	(void)state;
	t_processes(1, calls_come_again, NULL);
	t_processes(2, calls_come_again, NULL);
	t_processes(3, calls_come_again, NULL);
}

/* Large results are written with both kinds of stores by turns, until the better one is known. */
static void large_results(struct t_rank *r)
{
	enum { N = 400000, TIMES = 8 };
	struct kolo_comm *c =
		t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = T_PATIENCE / 2 });
	uint16_t *x = malloc(2 * N * (size_t)r->nranks), *y = malloc(2 * N * (size_t)r->nranks + 2);
	size_t all = N * (size_t)r->nranks;

	CHECK(x && y);
	for (size_t i = 0; i < all; i++)
		x[i] = (uint16_t)(i + (size_t)r->rank);
	for (int k = 0; k < TIMES; k++) {
		uint16_t *dst = y + k % 2; /* off alignment */

		CHECK(kolo_all_gather(c, x, dst, N, KOLO_BF16, NULL) == 0);
		for (size_t i = 0; i < all; i++)
			CHECK(dst[i] == (uint16_t)(i % N + i / N));
		memset(y, 0, 2 * all);
		CHECK(kolo_reduce_scatter(c, (int32_t *)x, (int32_t *)dst, N / 2, KOLO_I32,
					  KOLO_MAX, NULL) == 0);
		CHECK(kolo_broadcast(c, x, dst, all, KOLO_BF16, r->nranks - 1, NULL) == 0);
		for (size_t i = 0; i < all; i++)
			CHECK(dst[i] == (uint16_t)(i + (size_t)r->nranks - 1));
	}
	free(x);
	free(y);
	kolo_comm_destroy(c);
}

static void large_results_are_right_with_both_kinds_of_stores(void **state)
{
	(void)state;
	t_processes(2, large_results, NULL);
	t_processes(3, large_results, NULL);
}

/* ---- One way --------------------------------------------------------------------------------- */

/* Long payloads are written in another way from now on, if a turn still has room for as many bytes
 * as was decided. */
static void change_way(struct kolo_comm *c, enum ko_board_way way)
{
	ko_board_set_way(c->board, c->nranks, way, 0);
	if (ko_board_room(c->board) < c->agreed.costs.board_room)
		ko_board_set_way(c->board, c->nranks, KO_BOARD_WIDE, 0);
}

/* Roots and givers run ahead of those who read: no cell, room or slot is written before all have
 * read it. Vectors have up to `most` elements. */
static void go_one_way(struct t_rank *r, int times, int most)
{
	struct kolo_comm *c = comm_with_algorithm(r);
	uint64_t seed = 5, own = (uint64_t)r->rank;
	int32_t *x = malloc(sizeof(*x) * (size_t)most);

	CHECK(x);
	for (int k = 0; k < times; k++) {
		uint64_t dice = t_random(&seed); /* the same on all ranks */
		int root = dice % 7 == 0 ? (int)(dice >> 8 & 0xff) % r->nranks : 0,
		    n = 1 + (int)(dice >> 40) % most;

		if (t_random(&own) % 64 == 0)
			usleep((unsigned)(own >> 50) % 300);
		for (int i = 0; i < n; i++)
			x[i] = k + i + (dice >> 16 & 1 ? 0 : r->rank);
		if (dice >> 16 & 1) {
			CHECK(kolo_reduce(c, x, x, (size_t)n, KOLO_I32, KOLO_SUM, root, NULL) == 0);
			for (int i = 0; i < n; i++)
				CHECK(x[i] == (k + i) * (r->rank == root ? r->nranks : 1));
		} else {
			CHECK(kolo_broadcast(c, x, x, (size_t)n, KOLO_I32, root, NULL) == 0);
			for (int i = 0; i < n; i++)
				CHECK(x[i] == k + i + root);
		}
		if ((dice >> 17) % 16 == 0) {
			CHECK(kolo_barrier(c, NULL) == 0);
			change_way(c, (enum ko_board_way)((dice >> 24) % KO_BOARD_WAYS));
		}
	}
	free(x);
	kolo_comm_destroy(c);
}

/* Who only reads never writes its cells: they may be of any age. */
static void aged(struct t_rank *r)
{
	static const uint64_t turns[] = { 0x7fffffff, 0x80000001, 0xfffffffe,
					  UINT64_C(0x500000000) };
	struct kolo_comm *c = comm_with_algorithm(r);

	for (size_t k = 0; k < ARRAY_LEN(turns); k++) {
		c->board->turn.number = turns[k];
		for (int i = 0; i < 40; i++) {
			int x = r->rank == 0 ? i : -1;

			CHECK(kolo_broadcast(c, &x, &x, 1, KOLO_I32, 0, NULL) == 0 && x == i);
			CHECK(i % 10 || kolo_barrier(c, NULL) == 0);
		}
	}
	kolo_comm_destroy(c);
}

static void turns_of_the_board_may_be_far_apart(void **state)
{
	(void)state;
	t_processes(3, aged, "board");
}

static void one_way(struct t_rank *r)
{
	go_one_way(r, 2000, 40);
}

/* Vectors that take several turns on the board. If the algorithm is free, longer ones do so after
 * the ranks have agreed in a turn not to read each other's memory: they share two processors. */
static void long_way(struct t_rank *r)
{
	enum { LONG = 256 << 10 }; /* elements: of several slices */
	cpu_set_t all, two;

	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
	CPU_ZERO(&two);
	for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &two);
	CHECK(r->arg || sched_setaffinity(0, sizeof(two), &two) == 0);
	go_one_way(r, r->arg ? 150 : 500, r->arg ? LONG : 2 * LONG);
}

static void one_way_operations_overwrite_nothing_unread(void **state)
{
	(void)state;
	for (int n = 2; n <= 5; n++) {
		t_processes(n, one_way, "board");
		t_processes(n, one_way, "slices");
		t_processes(n, one_way, "ring");
		t_processes(n, one_way, "direct");
	}
	t_threads(4, one_way, "board");
	t_processes(2, long_way, "board");
	t_processes(3, long_way, "board");
	t_processes(3, long_way, "slices");
	t_threads(4, long_way, "slices");
	t_processes(5, long_way, "slices");
	t_processes(4, long_way, NULL);
}

/* ---- Traffic --------------------------------------------------------------------------------- */

static void traffic(struct t_rank *r)
{
	struct kolo_comm *c = comm_with_algorithm(r);
	bool board = is(r, "board"), slices = is(r, "slices"),
	     ring = is(r, "ring") || is(r, OFI) || is(r, TCP) || is(r, "exchange");
	bool exchange = is(r, "exchange") || is(r, OFI) || is(r, TCP);
	bool shortcuts = (is(r, OFI) || is(r, TCP)) && r->nranks > 3;
	/* The board takes what fits into 512 KiB: there it must be more to go round the ring. */
	size_t own = board ? 70000 : 4200, n = own * (size_t)r->nranks,
	       others = (size_t)r->nranks - 1;
	struct kolo_stats before, after;
	int *x = calloc(n, sizeof(*x));

	CHECK(x && kolo_comm_stats(c, &before) == 0);
	CHECK(kolo_all_reduce(c, x, x, n, KOLO_I32, KOLO_SUM, NULL) == 0);
	CHECK(kolo_comm_stats(c, &after) == 0 && after.ops == before.ops + 1);
	/* 2K(N-1)/N, both ways; directly half of it is written, and half read. */
	if (slices) /* all parts but its own, and the sums of that */
		CHECK(after.sent_bytes - before.sent_bytes == (others ? n * 4 : 0));
	else
		CHECK(after.sent_bytes - before.sent_bytes ==
		      (board || ring ? 2 : 1) * own * 4 * others);
	CHECK(after.received_bytes - before.received_bytes ==
	      (board || ring || slices ? 2 : 1) * own * 4 * others);
	/* What fits there goes over the board: K written, K read from each other. */
	CHECK(kolo_all_reduce(c, x, x, 100, KOLO_I32, KOLO_SUM, NULL) == 0);
	before = after;
	CHECK(kolo_comm_stats(c, &after) == 0);
	if (board && others)
		CHECK(after.sent_bytes - before.sent_bytes == 400 &&
		      after.received_bytes - before.received_bytes == 400 * others &&
		      after.to_next.bytes == before.to_next.bytes);
	if (exchange &&
	    r->nranks == 2) /* where it is never worse: K to the other one, as a ring would send */
		CHECK(after.exchange_ops == before.exchange_ops + 1 &&
		      after.to_next.bytes - before.to_next.bytes == 400);
	for (size_t k = 0; k < 20; k++) {
		CHECK(kolo_broadcast(c, x, x, k * 100, KOLO_I32, (int)k % r->nranks, NULL) == 0);
		CHECK(kolo_all_reduce(c, x, x, k * 31, KOLO_I32, KOLO_MAX, NULL) == 0);
		CHECK(kolo_reduce(c, x, x, k * 33, KOLO_I32, KOLO_MAX, (int)k % r->nranks, NULL) ==
		      0);
		CHECK(kolo_barrier(c, NULL) == 0);
	}
	CHECK(kolo_comm_stats(c, &after) == 0);
	CHECK(after.sent_bytes == after.model_sent_bytes &&
	      after.received_bytes == after.model_received_bytes);
	CHECK(!ring || shortcuts ||
	      (after.to_next.bytes == after.sent_bytes &&
	       after.from_prev.bytes == after.received_bytes));
	free(x);
	kolo_comm_destroy(c);
}

static void traffic_is_what_the_model_says(void **state)
{
	(void)state;
	for_every_number_of_ranks(traffic);
}

/* ---- Barrier, and very many elements --------------------------------------------------------- */

static void barrier_holds(struct t_rank *r)
{
	struct kolo_comm *c = comm_with_algorithm(r);
	int64_t entered, latest;

	for (int i = 0; i < r->nranks; i++) {
		if (i == r->rank)
			usleep(20000);
		entered = t_now_ms();
		CHECK(kolo_barrier(c, NULL) == 0);
		latest = entered;
		entered = t_now_ms(); /* left */
		CHECK(kolo_all_reduce(c, &latest, &latest, 1, KOLO_I64, KOLO_MAX, NULL) == 0);
		CHECK(entered >= latest);
	}
	kolo_comm_destroy(c);
}

static void nobody_leaves_a_barrier_before_all_have_entered(void **state)
{
	(void)state;
	for_every_number_of_ranks(barrier_holds);
}

static size_t available_memory(void)
{
	char line[128];
	size_t kib = 0;
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %zu kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib << 10;
}

static void huge(struct t_rank *r)
{
	struct kolo_comm *c = t_comm_with(r, (struct kolo_comm_attr){ 0 });
	size_t n = ((size_t)1 << 31) + 12345;
	unsigned char *x = malloc(n);

	CHECK(x != NULL);
	for (size_t i = 0; i < n; i++)
		x[i] = (unsigned char)((i >> 12 ^ i) + (size_t)r->rank);
	CHECK(kolo_all_reduce(c, x, x, n, KOLO_U8, KOLO_SUM, NULL) == 0);
	for (size_t i = 0; i < n; i++)
		CHECK(x[i] == (unsigned char)(2 * (i >> 12 ^ i) + 1));
	free(x);
	kolo_comm_destroy(c);
}

static void more_than_2_to_31_elements_are_reduced(void **state)
{
	(void)state;
	if (t_is_slow() || available_memory() < (size_t)6 << 30) {
		print_message("# skipped: takes 6 GiB of memory and a build without sanitizers\n");
		skip();
	}
	t_processes(2, huge, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_type_and_op_equals_the_sequential_result),
	cmocka_unit_test(every_count_equals_the_sequential_result),
	cmocka_unit_test(ranks_may_be_threads),
	cmocka_unit_test(bits_depend_on_ranks_count_type_and_op_only),
	cmocka_unit_test(calls_that_come_again_do_the_same),
	cmocka_unit_test(large_results_are_right_with_both_kinds_of_stores),
	cmocka_unit_test(turns_of_the_board_may_be_far_apart),
	cmocka_unit_test(one_way_operations_overwrite_nothing_unread),
	cmocka_unit_test(traffic_is_what_the_model_says),
	cmocka_unit_test(nobody_leaves_a_barrier_before_all_have_entered),
	cmocka_unit_test(more_than_2_to_31_elements_are_reduced),
};

T_MAIN(tests)
