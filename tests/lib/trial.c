/* See trial.h. */
#include "tests/lib/trial.h"
#include "tests/lib/t.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

/* ---- Data ------------------------------------------------------------------------------------ */

static void make_element(enum kolo_type type, int op, int rank, size_t i, void *out)
{
	uint64_t seed = (uint64_t)rank * 1000003 + i * 7 + (uint64_t)type * 77777,
		 bits = t_random(&seed);
	/* MIN and MAX get everything: zeros of both signs, infinities, NaN. The others stay
	 * finite. */
	static const double special[] = { 0.0, -0.0, INFINITY, -INFINITY, NAN };
	double x = ldexp((double)(int)(bits % 257) - 128, -6);

	if ((op == KOLO_MIN || op == KOLO_MAX || op == KOLO_MINLOC || op == KOLO_MAXLOC) &&
	    bits >> 32 & 1)
		x = special[(bits >> 33) % ARRAY_LEN(special)];
	/* Of the logical ops some elements are not true. */
	if (op >= KOLO_LAND && op <= KOLO_LXOR && bits >> 40 & 1)
		bits = 0;
	values_make(type, bits, x, out);
}

/* The factor that a rank scales with in a premultiplied sum. */
static struct values_scale scale_of(const struct t_trial *t, int rank, int nranks)
{
	char element[8] = { 0 };
	struct values_scale s = { .f = 0.5 + rank * 0.25, .u = (uint64_t)rank * 2 + 3 };

	if (t->op != T_PREMUL)
		return values_avg_scale(t->type, nranks);
	if (!values_is_integer(t->type)) { /* as the type can hold it */
		values_encode(t->type, s.f, element);
		s.f = values_decode(t->type, element);
	}
	return s;
}

/* An element of the vectors, for values_tree and values_grid. */
struct place {
	const struct t_trial *t;
	int nranks;
	size_t i;
};

static struct values_scale value_of(const void *arg, int rank, void *out)
{
	const struct place *p = arg;

	make_element(p->t->type, p->t->op, rank, p->i, out);
	return scale_of(p->t, rank, p->nranks);
}

/* Element i of the vector, combined in the communicator's order; of a block that belongs to
 * `owner`. */
static void expect(const struct kolo_comm *c, const struct t_trial *t, int owner, size_t i,
		   void *out)
{
	const char *order = kolo_comm_order(c);
	int nranks = kolo_comm_nranks(c);
	bool premul = t->op == T_PREMUL;
	enum kolo_op op = premul ? KOLO_SUM : (enum kolo_op)t->op;
	const struct place place = { t, nranks, i };
	char own[VALUES_SIZE];

	if (strcmp(order, "ring") != 0) {
		if (strcmp(order, "tree") == 0)
			values_tree(t->type, op, premul, 0, nranks, value_of, &place, out);
		else
			values_grid(c, t->type, op, premul, owner, value_of, &place, out);
		values_finish(t->type, op, nranks, out);
		return;
	}
	for (int k = 1; k <= nranks; k++) {
		int rank = (owner + k) % nranks;
		struct values_scale s = scale_of(t, rank, nranks);

		make_element(t->type, t->op, rank, i, own);
		if (k == 1)
			values_first(t->type, op, premul, s, own, out);
		else
			values_combine(t->type, op, premul, s, out, own);
	}
	values_finish(t->type, op, nranks, out);
}

/* ---- One trial ------------------------------------------------------------------------------- */

struct buffers {
	char *memory[2];
	char *src, *dst; /* src_len and dst_len bytes, guards around them, off alignment */
	size_t src_len, dst_len, len;
};

static size_t blocks(bool many, int nranks)
{
	return many ? (size_t)nranks : 1;
}

static void make_buffers(const struct t_setup *setup, const struct t_trial *t, struct buffers *b)
{
	int rank = kolo_comm_rank(setup->c), nranks = kolo_comm_nranks(setup->c);
	size_t block = t->n * kolo_type_size(t->type);

	b->src_len = block * blocks(t->call == REDUCE_SCATTER, nranks);
	b->dst_len = block * blocks(t->call == ALL_GATHER, nranks);
	b->len = (b->src_len > b->dst_len ? b->src_len : b->dst_len) + 2 * GUARD + 1;
	for (int k = 0; k < 2; k++) {
		CHECK(!setup->room[k] || b->len <= T_ROOM);
		b->memory[k] = setup->room[k] && !setup->copy ? setup->room[k] : malloc(b->len);
		CHECK(b->memory[k]);
		memset(b->memory[k], GUARD_BYTE, b->len);
	}
	b->src = b->memory[0] + GUARD + 1;
	b->dst = b->memory[1] + GUARD + 1;
	if (t->in_place && t->call == ALL_GATHER)
		b->src = b->dst + (size_t)rank * block;
	else if (t->in_place && t->call == REDUCE_SCATTER)
		b->dst = b->src + (size_t)rank * block;
	else if (t->in_place)
		b->dst = b->src;
}

/* Where the call finds what lies in one of the buffers here. */
static void *there(const struct t_setup *setup, const struct buffers *b, const char *here)
{
	for (int k = 0; k < 2 && setup->copy; k++)
		if (here >= b->memory[k] && here < b->memory[k] + b->len)
			return (char *)setup->room[k] + (here - b->memory[k]);
	return (void *)here;
}

static int run_call(const struct t_setup *setup, const struct t_trial *t, enum kolo_op op,
		    const struct buffers *b)
{
	void *src = there(setup, b, b->src), *dst = there(setup, b, b->dst);
	struct kolo_queue *q = setup->queue;

	switch (t->call) {
	case ALL_REDUCE: return kolo_all_reduce(setup->c, src, dst, t->n, t->type, op, q);
	case REDUCE: return kolo_reduce(setup->c, src, dst, t->n, t->type, op, t->root, q);
	case REDUCE_SCATTER: return kolo_reduce_scatter(setup->c, src, dst, t->n, t->type, op, q);
	case ALL_GATHER: return kolo_all_gather(setup->c, src, dst, t->n, t->type, q);
	default: return kolo_broadcast(setup->c, src, dst, t->n, t->type, t->root, q);
	}
}

static void call_and_wait(const struct t_setup *setup, const struct t_trial *t, enum kolo_op op,
			  const struct buffers *b)
{
	for (int k = 0; k < 2 && setup->copy; k++)
		setup->copy(setup->arg, setup->room[k], b->memory[k], b->len, true);
	CHECK(run_call(setup, t, op, b) == 0);
	CHECK(!setup->queue || kolo_queue_wait(setup->queue) == 0);
	for (int k = 0; k < 2 && setup->copy; k++)
		setup->copy(setup->arg, setup->room[k], b->memory[k], b->len, false);
}

/* What element i of dst must be. */
static void expect_result(const struct kolo_comm *c, const struct t_trial *t, size_t i, void *out)
{
	int rank = kolo_comm_rank(c), nranks = kolo_comm_nranks(c);
	size_t block = (t->n + (size_t)nranks - 1) / (size_t)nranks;
	bool grid = strcmp(kolo_comm_order(c), "grid") == 0;

	switch (t->call) {
	case ALL_REDUCE: expect(c, t, (int)(i / block), i, out); break;
	case REDUCE:
		expect(c, t, grid ? values_grid_owner(c, (int)(i / block), t->root) : t->root, i,
		       out);
		break;
	case REDUCE_SCATTER: expect(c, t, rank, (size_t)rank * t->n + i, out); break;
	case ALL_GATHER: make_element(t->type, t->op, (int)(i / t->n), i % t->n, out); break;
	default: make_element(t->type, t->op, t->root, i, out); break;
	}
}

static void check_guards(const char *memory, const char *begin, size_t len)
{
	for (const char *p = memory; p < begin; p++)
		CHECK((unsigned char)*p == GUARD_BYTE);
	for (int i = 0; i < GUARD; i++)
		CHECK((unsigned char)begin[len + (size_t)i] == GUARD_BYTE);
}

static enum kolo_op make_op(struct kolo_comm *c, const struct t_trial *t, int rank, int nranks)
{
	struct values_scale s = scale_of(t, rank, nranks);
	enum kolo_op op;
	char scalar[8];

	if (t->op != T_PREMUL)
		return (enum kolo_op)t->op;
	if (values_is_integer(t->type))
		memcpy(scalar, &s.u, kolo_type_size(t->type));
	else
		values_encode(t->type, s.f, scalar);
	CHECK(kolo_op_create_premul_sum(c, scalar, t->type, &op) == 0);
	return op;
}

void t_try(const struct t_setup *setup, const struct t_trial *t)
{
	struct kolo_comm *c = setup->c;
	int rank = kolo_comm_rank(c), nranks = kolo_comm_nranks(c);
	size_t size = kolo_type_size(t->type);
	bool result_here = t->call != REDUCE || rank == t->root;
	enum kolo_op op = make_op(c, t, rank, nranks);
	struct buffers b;
	char want[VALUES_SIZE];

	make_buffers(setup, t, &b);
	for (size_t i = 0; i < b.src_len / size; i++)
		if (t->call != BROADCAST || rank == t->root)
			make_element(t->type, t->op, rank, i, b.src + i * size);
	call_and_wait(setup, t, op, &b);
	for (size_t i = 0; result_here && i < b.dst_len / size; i++) {
		expect_result(c, t, i, want);
		CHECK(values_same(t->type, b.dst + i * size, want));
	}
	/* What was not a result is as it was. */
	for (size_t i = 0; i < b.src_len / size; i++) {
		char *p = b.src + i * size;

		if ((p >= b.dst && p < b.dst + b.dst_len && result_here) ||
		    (t->call == BROADCAST && rank != t->root))
			continue;
		make_element(t->type, t->op, rank, i, want);
		CHECK(memcmp(p, want, size) == 0);
	}
	if (!t->in_place)
		check_guards(b.memory[1], b.dst, result_here ? b.dst_len : 0);
	if (t->op == T_PREMUL)
		CHECK(kolo_op_destroy(c, op) == 0);
	for (int k = 0; k < 2; k++)
		if (b.memory[k] != setup->room[k])
			free(b.memory[k]);
}

/* ---- Sweeps ---------------------------------------------------------------------------------- */

static bool reduces(enum t_call call)
{
	return call == ALL_REDUCE || call == REDUCE || call == REDUCE_SCATTER;
}

static bool has_root(enum t_call call)
{
	return call == REDUCE || call == BROADCAST;
}

void t_try_all_calls(const struct t_setup *setup, struct t_trial t, unsigned share)
{
	int nranks = kolo_comm_nranks(setup->c), op = t.op;
	uint64_t key = (uint64_t)t.type + (uint64_t)op + t.n;
	bool has = op == T_PREMUL ? values_has_premul(t.type)
				  : values_has_op(t.type, (enum kolo_op)op);

	/* Those of bits and truth differ from each other in one loop alone. */
	if (op >= KOLO_BAND && op <= KOLO_LXOR)
		share = 6;
	for (int call = 0; call < T_NCALLS; call++) {
		t.call = (enum t_call)call;
		t.op = reduces(t.call) ? op : KOLO_SUM;
		if (reduces(t.call) ? !has : op != KOLO_SUM)
			continue;
		for (t.root = 0; t.root < (has_root(t.call) ? nranks : 1); t.root++) {
			for (int place = 0; place < 2; place++) {
				t.in_place = place;
				if (t_sampled(key++, share))
					t_try(setup, &t);
			}
		}
	}
}
