/* Ops that call a function of the program (kolo_op_create): elements of any size by every algorithm
 * and order, ranks in order where the op wants them so, queues and groups, and what is refused. */
#include "tests/lib/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1500, ROOM = 256 * 1024 };

/* The communicator of a case. */
struct how {
	const char *order, *algorithm, *transport;
	int groups; /* for the order "grid"; 0: none */
	bool alloc; /* buffers of kolo_alloc */
};

static struct kolo_comm *comm_of(struct t_rank *r)
{
	const struct how *h = r->arg;
	struct kolo_comm_attr attr = { .order = h->order,
				       .algorithm = h->algorithm,
				       .transport = h->transport,
				       .slot_len = 4096,
				       .timeout_s = T_PATIENCE / 2 };
	char shape[32];

	if (h->groups) {
		snprintf(shape, sizeof(shape), "%dx%d", h->groups, r->nranks / h->groups);
		setenv("KOLO_SHAPE", shape, 1);
	}
	return t_comm_with(r, attr);
}

/* ---- Two ops --------------------------------------------------------------------------------- */

/* Adds bytes: for elements of any size. */
struct bytes {
	size_t size;
	long calls;
};

static void add_bytes(void *arg, void *out, const void *a, const void *b, size_t n)
{
	struct bytes *is = arg;
	const unsigned char *x = a, *y = b;
	unsigned char *z = out;

	is->calls++;
	CHECK(n > 0 && (is->size % 8 || ((uintptr_t)x | (uintptr_t)y | (uintptr_t)z) % 8 == 0));
	for (size_t i = 0; i < n * is->size; i++)
		z[i] = (unsigned char)(x[i] + y[i]);
}

/* Multiplies matrices of 2 x 2 that wrap: not commutative. */
struct matrix {
	uint64_t of[4];
};

static void multiply(void *arg, void *out, const void *a, const void *b, size_t n)
{
	const struct matrix *x = a, *y = b;
	struct matrix *z = out;

	(void)arg;
	for (size_t i = 0; i < n; i++)
		z[i] = (struct matrix){ {
			x[i].of[0] * y[i].of[0] + x[i].of[1] * y[i].of[2],
			x[i].of[0] * y[i].of[1] + x[i].of[1] * y[i].of[3],
			x[i].of[2] * y[i].of[0] + x[i].of[3] * y[i].of[2],
			x[i].of[2] * y[i].of[1] + x[i].of[3] * y[i].of[3],
		} };
}

/* Elements of a rank, from element `first` on. */
static void fill(void *out, size_t size, int rank, size_t first, size_t n)
{
	unsigned char *x = out;

	for (size_t i = 0; i < n; i++) {
		uint64_t seed = ((uint64_t)rank << 32) + first + i, bits = 0;

		for (size_t k = 0; k < size; k++) {
			if (k % 8 == 0)
				bits = t_random(&seed);
			x[i * size + k] = (unsigned char)(bits >> k % 8 * 8);
		}
	}
}

/* ---- Every call ------------------------------------------------------------------------------ */

struct trial {
	struct kolo_comm *c;
	enum kolo_op op;
	enum kolo_type type;
	size_t size;
	kolo_combine_fn *combine;
	void *arg;
	char *src, *dst;
};

/* Elements [first, first + n) of all ranks, combined by number. */
static void check(const struct trial *t, const char *got, size_t first, size_t n)
{
	char *want = malloc(n * t->size + 1), *own = malloc(n * t->size + 1);

	CHECK(want && own);
	fill(want, t->size, 0, first, n);
	for (int r = 1; n && r < kolo_comm_nranks(t->c); r++) {
		fill(own, t->size, r, first, n);
		t->combine(t->arg, want, want, own, n);
	}
	CHECK(memcmp(got, want, n * t->size) == 0);
	free(want);
	free(own);
}

static void try_all_reduce(const struct trial *t, size_t n, bool in_place)
{
	char *src = in_place ? t->dst : t->src;

	fill(src, t->size, kolo_comm_rank(t->c), 0, n);
	CHECK(kolo_all_reduce(t->c, src, t->dst, n, t->type, t->op, NULL) == 0);
	check(t, t->dst, 0, n);
}

static void try_reduce(const struct trial *t, size_t n, int root)
{
	fill(t->src, t->size, kolo_comm_rank(t->c), 0, n);
	CHECK(kolo_reduce(t->c, t->src, t->dst, n, t->type, t->op, root, NULL) == 0);
	if (kolo_comm_rank(t->c) == root)
		check(t, t->dst, 0, n);
}

static void try_reduce_scatter(const struct trial *t, size_t n)
{
	int rank = kolo_comm_rank(t->c), nranks = kolo_comm_nranks(t->c);
	size_t counts[16], before = 0;

	fill(t->src, t->size, rank, 0, n * (size_t)nranks);
	CHECK(kolo_reduce_scatter(t->c, t->src, t->dst, n, t->type, t->op, NULL) == 0);
	check(t, t->dst, (size_t)rank * n, n);
	for (int r = 0; r < nranks; r++)
		counts[r] = r % 3 == 1 ? 0 : n - (size_t)r % 2 * (n / 2);
	for (int r = 0; r < rank; r++)
		before += counts[r];
	CHECK(kolo_reduce_scatter_v(t->c, t->src, t->dst, counts, t->type, t->op, NULL) == 0);
	check(t, t->dst, before, counts[rank]);
}

static void try_all(struct trial *t, bool alloc)
{
	static const size_t counts[] = { 1, 3, 40, MOST };
	void *room[2] = { NULL, NULL };
	int nranks = kolo_comm_nranks(t->c);

	for (int k = 0; k < 2; k++) {
		if (alloc)
			CHECK(kolo_alloc(t->c, ROOM, &room[k]) == 0);
		else
			room[k] = malloc(ROOM);
		CHECK(room[k]);
	}
	t->src = room[0];
	t->dst = room[1];
	for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
		size_t n = counts[k], most = ROOM / t->size;

		try_all_reduce(t, n < most ? n : most, k % 2);
		try_reduce(t, n < most ? n : most, (int)k % nranks);
		most /= (size_t)nranks;
		try_reduce_scatter(t, n < most ? n : most);
	}
	for (int k = 0; k < 2; k++)
		if (alloc)
			CHECK(kolo_free(t->c, room[k]) == 0);
		else
			free(room[k]);
}

static void try_sizes(struct t_rank *r)
{
	static const size_t sizes[] = { 1, 3, 12, 24, KOLO_MOST_BYTES };
	const struct how *h = r->arg;
	struct kolo_comm *c = comm_of(r);
	struct trial t = { .c = c, .combine = add_bytes };
	struct kolo_stats s;

	for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
		struct bytes is = { .size = sizes[k] };

		t.arg = &is;
		t.size = sizes[k];
		t.type = kolo_type_bytes(t.size);
		CHECK(kolo_op_create(c, t.type, add_bytes, &is, 1, &t.op) == 0);
		try_all(&t, h->alloc);
		CHECK(kolo_op_destroy(c, t.op) == 0);
	}
	/* An op of one's own for a type of Kolo's. */
	t.arg = &(struct bytes){ .size = 4 };
	t.size = 4;
	t.type = KOLO_F32;
	CHECK(kolo_op_create(c, KOLO_F32, add_bytes, t.arg, 1, &t.op) == 0);
	try_all(&t, h->alloc);
	if (!h->order || strcmp(h->order, "tree") == 0 || r->nranks == 1) {
		t.combine = multiply;
		t.size = sizeof(struct matrix);
		t.type = kolo_type_bytes(t.size);
		if (h->order || r->nranks == 1) {
			CHECK(kolo_op_create(c, t.type, multiply, NULL, 0, &t.op) == 0);
			try_all(&t, h->alloc);
		}
	}
	CHECK(kolo_comm_stats(c, &s) == 0);
	CHECK(s.sent_bytes == s.model_sent_bytes && s.received_bytes == s.model_received_bytes);
	kolo_comm_destroy(c);
}

static void ops_of_the_program_do_what_they_say(void **state)
{
	static const struct how cases[] = {
		{ 0 },
		{ .algorithm = "ring" },
		{ .algorithm = "board" },
		{ .algorithm = "slices" },
		{ .algorithm = "exchange" },
		{ .algorithm = "direct" },
		{ .algorithm = "direct", .alloc = true },
		{ .transport = "tcp" },
		{ .order = "tree" },
		{ .order = "tree", .algorithm = "board" },
		{ .order = "tree", .algorithm = "slices" },
		{ .order = "tree", .algorithm = "exchange" },
		{ .order = "tree", .algorithm = "doubling" },
		{ .order = "tree", .algorithm = "pairwise" },
		{ .order = "tree", .algorithm = "direct" },
		{ .order = "tree", .algorithm = "direct", .alloc = true },
		{ .order = "tree", .transport = "tcp" },
		{ .order = "grid", .groups = 2 },
		{ .order = "grid", .groups = 2, .transport = "tcp" },
		{ .order = "grid", .groups = 3, .algorithm = "partials" },
		{ .order = "grid", .groups = 3, .algorithm = "center" },
		{ .order = "grid", .groups = 3, .algorithm = "shares" },
	};

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(cases); k++)
		for (int n = 1; n <= 6; n++)
			if (cases[k].groups ? n == 2 * cases[k].groups
					    : n < 4 || (n == 5 && !t_is_slow()))
				t_processes(n, try_sizes, (void *)&cases[k]);
	t_threads(3, try_sizes, (void *)&cases[0]);
	t_threads(3, try_sizes, (void *)&cases[4]);
	t_threads(3, try_sizes, (void *)&cases[12]);
}

/* ---- Later ----------------------------------------------------------------------------------- */

/* An op may go before what was queued with it is done. */
static void destroy_while_queued(struct t_rank *r)
{
	struct kolo_comm *c = comm_of(r);
	struct bytes is = { .size = 24 };
	struct kolo_queue *q;
	enum kolo_op op, other;
	char *x[8];

	CHECK(kolo_queue_create(&q) == 0);
	for (int round = 0; round < 2; round++) {
		for (size_t k = 0; k < ARRAY_LEN(x); k++) {
			x[k] = malloc(24 * 100);
			CHECK(x[k]);
			fill(x[k], 24, r->rank, k, 100);
		}
		CHECK(kolo_op_create(c, kolo_type_bytes(24), add_bytes, &is, 1, &op) == 0);
		if (round)
			CHECK(kolo_group_begin() == 0);
		for (size_t k = 0; k < ARRAY_LEN(x); k++)
			CHECK(kolo_all_reduce(c, x[k], x[k], 100, kolo_type_bytes(24), op, q) == 0);
		CHECK(kolo_op_destroy(c, op) == 0);
		for (int k = 0; k < 50; k++) /* others take its place, and ops move */
			CHECK(kolo_op_create(c, KOLO_F64, multiply, NULL, 1, &other) == 0);
		if (round)
			CHECK(kolo_group_end() == 0);
		CHECK(kolo_queue_wait(q) == 0);
		for (size_t k = 0; k < ARRAY_LEN(x); k++) {
			struct trial t = { .c = c, .size = 24, .combine = add_bytes, .arg = &is };

			check(&t, x[k], k, 100);
			free(x[k]);
		}
	}
	CHECK(is.calls > 0 || r->nranks == 1);
	kolo_queue_destroy(q);
	kolo_comm_destroy(c);
}

static void queues_and_groups_keep_the_op(void **state)
{
	static const struct how how = { 0 };

	(void)state;
	t_processes(1, destroy_while_queued, (void *)&how);
	t_processes(3, destroy_while_queued, (void *)&how);
}

static void keep_a(void *arg, void *out, const void *a, const void *b, size_t n)
{
	(void)b;
	if (out != a)
		memcpy(out, a, n * *(size_t *)arg);
}

/* The same call again, with an op that has the number of another one that went. */
static void replace_ops(struct t_rank *r)
{
	struct kolo_comm *c = comm_of(r);
	enum kolo_type type = kolo_type_bytes(8);
	struct bytes is = { .size = 8 };
	size_t size = 8;
	uint64_t x = 1, y = 0;
	enum kolo_op sum, first;

	for (int k = 0; k < 20; k++) {
		CHECK(kolo_op_create(c, type, add_bytes, &is, 1, &sum) == 0);
		CHECK(kolo_all_reduce(c, &x, &y, 1, type, sum, NULL) == 0);
		CHECK(y == (uint64_t)r->nranks);
		CHECK(kolo_op_destroy(c, sum) == 0);
		CHECK(kolo_op_create(c, type, keep_a, &size, 1, &first) == 0 && first == sum);
		CHECK(kolo_all_reduce(c, &x, &y, 1, type, first, NULL) == 0 && y == 1);
		CHECK(kolo_op_destroy(c, first) == 0);
	}
	kolo_comm_destroy(c);
}

static void a_number_is_used_again_for_another_op(void **state)
{
	static const struct how how = { 0 };

	(void)state;
	t_processes(2, replace_ops, (void *)&how);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void check_refused(int rc, int code, const char *word)
{
	CHECK(rc == code);
	CHECK(strstr(kolo_last_error(), word) != NULL);
}

static void mistakes(struct t_rank *r)
{
	struct kolo_comm *c = comm_of(r);
	enum kolo_type type = kolo_type_bytes(24), large = kolo_type_bytes(KOLO_MOST_BYTES + 1);
	struct bytes is = { .size = 24 };
	size_t counts[2] = { 1, 1 };
	char x[2 * 24], y[2 * 24];
	enum kolo_op op, none;

	CHECK(kolo_type_size(type) == 24 && kolo_type_size(large) == 0);
	CHECK(kolo_type_size(kolo_type_bytes(0)) == 0 && kolo_type_name(large) == NULL);
	CHECK(strcmp(kolo_type_name(type), "bytes") == 0);
	CHECK(kolo_op_create(c, type, add_bytes, &is, 1, &op) == 0);
	check_refused(kolo_op_create(c, large, add_bytes, &is, 1, &none), KOLO_EINVAL, "256");
	check_refused(kolo_op_create(c, type, NULL, &is, 1, &none), KOLO_EINVAL, "combine");
	check_refused(kolo_op_create(c, type, add_bytes, &is, 0, &none), KOLO_ENOTSUP,
		      "want attr->order \"tree\"");
	check_refused(kolo_op_create_premul_sum(c, x, type, &none), KOLO_EINVAL, "floating");
	check_refused(kolo_op_create_premul_sum(c, x, KOLO_C64, &none), KOLO_EINVAL, "floating");
	check_refused(kolo_op_create_premul_sum(c, x, KOLO_F32_I32, &none), KOLO_EINVAL,
		      "floating");
	check_refused(kolo_all_reduce(c, x, y, 1, kolo_type_bytes(12), op, NULL), KOLO_EINVAL,
		      "no op for bytes");
	check_refused(kolo_all_reduce(c, x, y, 1, KOLO_U8, op, NULL), KOLO_EINVAL, "no op for u8");
	check_refused(kolo_all_reduce(c, x, y, 1, type, KOLO_SUM, NULL), KOLO_EINVAL,
		      "bytes has no op sum");
	check_refused(kolo_all_reduce(c, x, y, 1, KOLO_C64, KOLO_MAX, NULL), KOLO_EINVAL,
		      "c64 has no op max");
	check_refused(kolo_all_gather(c, x, y, 1, type, NULL), KOLO_EINVAL, "24 times as many");
	check_refused(kolo_all_gather_v(c, x, y, counts, type, NULL), KOLO_EINVAL, "KOLO_U8");
	check_refused(kolo_broadcast(c, x, y, 1, type, 0, NULL), KOLO_EINVAL, "KOLO_U8");
	check_refused(kolo_send(c, x, 1, type, 0, NULL), KOLO_EINVAL, "KOLO_U8");
	CHECK(kolo_all_reduce(c, x, y, 1, type, op, NULL) == 0);
	CHECK(kolo_op_destroy(c, op) == 0);
	check_refused(kolo_all_reduce(c, x, y, 1, type, op, NULL), KOLO_EINVAL, "no op");
	kolo_comm_destroy(c);
}

static void wrong_arguments_are_refused(void **state)
{
	static const struct how how = { 0 };

	(void)state;
	t_processes(2, mistakes, (void *)&how);
}

/* Ranks with elements of two sizes, the same number and as many bytes in all. */
static void disagree(struct t_rank *r)
{
	struct kolo_comm *c = comm_of(r);
	struct bytes is = { .size = r->rank ? 12 : 24 };
	enum kolo_type type = kolo_type_bytes(is.size);
	char x[240] = { 0 }, y[240];
	enum kolo_op op;

	CHECK(kolo_op_create(c, type, add_bytes, &is, 1, &op) == 0);
	CHECK(kolo_all_reduce(c, x, y, r->rank ? 2 : 1, type, op, NULL) == KOLO_EMISMATCH);
	CHECK(strstr(kolo_last_error(), "n=2, 12 bytes each, its own op") &&
	      strstr(kolo_last_error(), "n=1, 24 bytes each, its own op"));
	kolo_comm_destroy(c);
}

static void ranks_with_other_elements_are_told(void **state)
{
	static const struct how hows[] = { { 0 }, { .order = "tree", .transport = "tcp" } };

	(void)state;
	t_processes(2, disagree, (void *)&hows[0]);
	t_processes(3, disagree, (void *)&hows[1]);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(ops_of_the_program_do_what_they_say),
	cmocka_unit_test(a_number_is_used_again_for_another_op),
	cmocka_unit_test(queues_and_groups_keep_the_op),
	cmocka_unit_test(wrong_arguments_are_refused),
	cmocka_unit_test(ranks_with_other_elements_are_told),
};

T_MAIN(tests)
