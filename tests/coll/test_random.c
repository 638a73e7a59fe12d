/* A random program: all ranks make the same one from a seed and do their part of it, on several
 * communicators, with and without queues and groups; each knows what must come out. Elements are
 * small whole numbers, or quarters of them, so that all types add them up without rounding.
 * T_SEED=N in the environment changes the seed. */
#include "tests/lib/t.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	MOST_RANKS = 6,
	MOST_N = 100003,
	NCOMMS = 3,
	NQUEUES = 2,
	MOST_IN_GROUP = 24,
	MOST_JOBS = 32
};

/* ---- Elements -------------------------------------------------------------------------------- */

enum { QUARTERS = 4 * 64 + 1, NTYPES = KOLO_U16 + 1 };

/* Every quarter from 0 to 64 as each type has it; integers have the whole ones. */
static uint64_t encoded[NTYPES][QUARTERS];

/* A float of few bits that holds x > 0 without rounding, or anything where it can't. */
static uint64_t encode_small(double x, int mantissa, int bias)
{
	int exponent;
	double fraction = frexp(x, &exponent); /* x = fraction * 2^exponent, 0.5 <= fraction < 1 */

	if (x <= 0)
		return 0;
	return ((uint64_t)(exponent - 1 + bias) << mantissa) +
	       (uint64_t)((2 * fraction - 1) * (double)(1 << mantissa));
}

static uint64_t encode(enum kolo_type type, double x)
{
	float f = (float)x;
	uint64_t bits = 0;

	switch (type) {
	case KOLO_F16: return encode_small(x, 10, 15);
	case KOLO_BF16: return encode_small(x, 7, 127);
	case KOLO_F8E4M3: return encode_small(x, 3, 7);
	case KOLO_F8E5M2: return encode_small(x, 2, 15);
	case KOLO_F32: memcpy(&bits, &f, sizeof(f)); return bits;
	case KOLO_F64: memcpy(&bits, &x, sizeof(x)); return bits;
	default: return (uint64_t)x;
	}
}

static void make_encoded(void)
{
	for (int t = 0; t < NTYPES; t++)
		for (int k = 0; k < QUARTERS; k++)
			encoded[t][k] = encode((enum kolo_type)t, k / 4.0);
}

static bool is_float(enum kolo_type type)
{
	return type >= KOLO_F16 && type <= KOLO_F8E5M2;
}

/* ---- Operations ------------------------------------------------------------------------------ */

enum kind {
	ALL_REDUCE,
	REDUCE,
	REDUCE_SCATTER,
	REDUCE_SCATTER_V,
	BROADCAST,
	ALL_GATHER,
	ALL_GATHER_V,
	ALL_TO_ALL,
	ALL_TO_ALL_V,
	GATHER,
	GATHER_V,
	SCATTER,
	SCATTER_V,
	BARRIER,
	MESSAGE,
	NKINDS
};

/* Ranks here are those of its communicator. */
struct op {
	enum kind kind;
	uint64_t id;
	int comm, root, from, to;
	enum kolo_type type;
	enum kolo_op op;
	size_t n; /* of each part; counts where it has them: */
	size_t counts[MOST_RANKS]
		     [MOST_RANKS]; /* [r][0] of rank r's part; of all_to_all_v from, to */
	bool in_place;
};

struct comm {
	struct kolo_comm *c;
	int rank, nranks; /* rank < 0: this rank is not in it */
};

/* A call whose result is still to be checked. */
struct job {
	struct op op;
	char *src, *dst, *want;
	size_t len; /* bytes of dst, and of want */
	bool sends; /* of a message: this end */
	bool dst_in_src;
};

struct program {
	struct comm comms[NCOMMS];
	struct kolo_queue *queues[NQUEUES];
	struct job jobs[MOST_JOBS];
	int njobs;
	uint64_t shared, own; /* random states: the same on all ranks, and this rank's */
};

static size_t pick(uint64_t *state, size_t n)
{
	return (size_t)(t_random(state) % n);
}

static size_t pick_n(uint64_t *state)
{
	switch (pick(state, 10)) {
	case 0: return pick(state, MOST_N + 1);
	case 1:
	case 2:
	case 3: return pick(state, 5000);
	case 4: return 0;
	default: return pick(state, 40);
	}
}

/* What rank `r` has at place i for rank `to` (0 where all get the same), in quarters. */
static int quarters(const struct op *op, int r, int to, size_t i)
{
	uint64_t x = (op->id * 31 + (uint64_t)r) * 31 + (uint64_t)to + i * 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	return (op->op == KOLO_PROD) * 4 + (int)(x >> 60 & 1) * 4;
}

/* Element i of the vector, combined over all ranks. */
static int combined(const struct op *op, int nranks, size_t i)
{
	int value = quarters(op, 0, 0, i);

	if (op->op >= KOLO_LAND)
		value = value ? 4 : 0;
	for (int r = 1; r < nranks; r++) {
		int x = quarters(op, r, 0, i);

		switch (op->op) {
		case KOLO_PROD: value = value * x / 4; break;
		case KOLO_MIN: value = x < value ? x : value; break;
		case KOLO_MAX: value = x > value ? x : value; break;
		case KOLO_BAND: value &= x; break;
		case KOLO_BOR: value |= x; break;
		case KOLO_BXOR: value ^= x; break;
		case KOLO_LAND: value = value && x ? 4 : 0; break;
		case KOLO_LOR: value = value || x ? 4 : 0; break;
		case KOLO_LXOR: value = !value != !x ? 4 : 0; break;
		default: value += x;
		}
	}
	if (op->op == KOLO_AVG)
		return is_float(op->type) ? value / nranks : value / 4 / nranks * 4;
	return value;
}

/* Elements of the part of rank r; of all_to_all from r to `to`. */
static size_t part(const struct op *op, int r, int to)
{
	switch (op->kind) {
	case REDUCE_SCATTER_V:
	case ALL_GATHER_V:
	case GATHER_V:
	case SCATTER_V: return op->counts[r][0];
	case ALL_TO_ALL_V: return op->counts[r][to];
	default: return op->n;
	}
}

/* ---- What must come out, and what goes in ---------------------------------------------------- */

struct writer {
	const struct op *op;
	char *at; /* NULL: only counted */
	size_t n;
};

static void put(struct writer *w, int value)
{
	size_t size = kolo_type_size(w->op->type);

	if (w->at)
		memcpy(w->at + w->n * size, &encoded[w->op->type][value], size);
	w->n++;
}

/* Elements before the part of rank r. */
static size_t before(const struct op *op, int r)
{
	size_t sum = 0;

	for (int k = 0; k < r; k++)
		sum += part(op, k, 0);
	return sum;
}

static bool reduces(enum kind kind)
{
	return kind <= REDUCE_SCATTER_V;
}

/* src of rank `me`. */
static void write_src(struct writer *w, int me, int nranks)
{
	const struct op *op = w->op;
	bool all = op->kind == REDUCE_SCATTER || op->kind == REDUCE_SCATTER_V;
	bool parts = op->kind == ALL_TO_ALL || op->kind == ALL_TO_ALL_V || op->kind == SCATTER ||
		     op->kind == SCATTER_V;
	size_t n = all ? before(op, nranks) : part(op, me, 0);

	if ((op->kind == BROADCAST || op->kind == SCATTER || op->kind == SCATTER_V) &&
	    me != op->root)
		return;
	if (op->kind == BARRIER || (op->kind == MESSAGE && me != op->from))
		return;
	for (int to = 0; parts && to < nranks; to++) {
		bool to_all = op->kind == ALL_TO_ALL || op->kind == ALL_TO_ALL_V;

		n = to_all ? part(op, me, to) : part(op, to, 0);
		for (size_t i = 0; i < n; i++)
			put(w, quarters(op, me, to, i));
	}
	for (size_t i = 0; !parts && i < n; i++)
		put(w, quarters(op, me, 0, i));
}

/* dst of rank `me`. */
static void write_dst(struct writer *w, int me, int nranks)
{
	const struct op *op = w->op;
	size_t first =
		op->kind == REDUCE_SCATTER || op->kind == REDUCE_SCATTER_V ? before(op, me) : 0;
	bool to_root = op->kind == REDUCE || op->kind == GATHER || op->kind == GATHER_V;

	if ((to_root && me != op->root) || op->kind == BARRIER ||
	    (op->kind == MESSAGE && me != op->to))
		return;
	if (reduces(op->kind)) {
		for (size_t i = 0; i < part(op, me, 0); i++)
			put(w, combined(op, nranks, first + i));
		return;
	}
	for (int r = 0; r < nranks; r++) {
		bool scatters = op->kind == SCATTER || op->kind == SCATTER_V;
		bool to_all = op->kind == ALL_TO_ALL || op->kind == ALL_TO_ALL_V;
		size_t n = to_all ? part(op, r, me) : part(op, scatters ? me : r, 0);
		int to = scatters || to_all ? me : 0;

		if ((op->kind == BROADCAST || scatters) && r != op->root)
			continue;
		if (op->kind == MESSAGE && r != op->from)
			continue;
		for (size_t i = 0; i < n; i++)
			put(w, quarters(op, r, to, i));
	}
}

static char *make_buffer(const struct op *op, void (*write)(struct writer *, int, int),
			 const struct comm *c, size_t *len)
{
	struct writer w = { op, NULL, 0 };
	char *buffer;

	write(&w, c->rank, c->nranks);
	*len = w.n * kolo_type_size(op->type);
	CHECK((buffer = malloc(*len + 1)) != NULL);
	w = (struct writer){ op, buffer, 0 };
	write(&w, c->rank, c->nranks);
	return buffer;
}

/* Puts src where the call allows it in place. */
static void put_in_place(struct job *j, const struct comm *c, size_t src_len)
{
	const struct op *op = &j->op;
	size_t at = before(op, c->rank) * kolo_type_size(op->type);
	bool root = c->rank == op->root;

	switch (op->kind) {
	case ALL_REDUCE: break;
	case REDUCE:
	case BROADCAST:
		if (!root)
			return;
		break;
	case ALL_GATHER:
	case ALL_GATHER_V:
		memcpy(j->dst + at, j->src, src_len);
		free(j->src);
		j->src = j->dst + at;
		return;
	case SCATTER:
	case SCATTER_V:
		if (!root)
			return;
		/* fall through */
	case REDUCE_SCATTER:
	case REDUCE_SCATTER_V:
		free(j->dst);
		j->dst = j->src + at;
		j->dst_in_src = true;
		return;
	case GATHER:
	case GATHER_V:
		if (!root)
			return;
		memcpy(j->dst + at, j->src, src_len);
		free(j->src);
		j->src = j->dst + at;
		return;
	default: return;
	}
	memcpy(j->dst, j->src, src_len);
	free(j->src);
	j->src = j->dst;
}

/* ---- Doing it -------------------------------------------------------------------------------- */

static void call(struct job *j, const struct comm *c, struct kolo_queue *q)
{
	const struct op *op = &j->op;
	size_t counts[MOST_RANKS], received[MOST_RANKS], n = part(op, c->rank, 0);
	bool is_root = c->rank == op->root;
	int rc = 0;

	for (int r = 0; r < c->nranks; r++) {
		counts[r] = op->kind == ALL_TO_ALL_V ? op->counts[c->rank][r] : op->counts[r][0];
		received[r] = op->counts[r][c->rank];
	}
	switch (op->kind) {
	case ALL_REDUCE: rc = kolo_all_reduce(c->c, j->src, j->dst, n, op->type, op->op, q); break;
	case REDUCE:
		rc = kolo_reduce(c->c, j->src, j->dst, n, op->type, op->op, op->root, q);
		break;
	case REDUCE_SCATTER:
		rc = kolo_reduce_scatter(c->c, j->src, j->dst, n, op->type, op->op, q);
		break;
	case REDUCE_SCATTER_V:
		rc = kolo_reduce_scatter_v(c->c, j->src, j->dst, counts, op->type, op->op, q);
		break;
	case BROADCAST: rc = kolo_broadcast(c->c, j->src, j->dst, n, op->type, op->root, q); break;
	case ALL_GATHER: rc = kolo_all_gather(c->c, j->src, j->dst, n, op->type, q); break;
	case ALL_GATHER_V: rc = kolo_all_gather_v(c->c, j->src, j->dst, counts, op->type, q); break;
	case ALL_TO_ALL: rc = kolo_all_to_all(c->c, j->src, j->dst, n, op->type, q); break;
	case ALL_TO_ALL_V:
		rc = kolo_all_to_all_v(c->c, j->src, counts, j->dst, received, op->type, q);
		break;
	case GATHER: rc = kolo_gather(c->c, j->src, j->dst, n, op->type, op->root, q); break;
	case GATHER_V:
		rc = kolo_gather_v(c->c, j->src, n, j->dst, is_root ? counts : NULL, op->type,
				   op->root, q);
		break;
	case SCATTER: rc = kolo_scatter(c->c, j->src, j->dst, n, op->type, op->root, q); break;
	case SCATTER_V:
		rc = kolo_scatter_v(c->c, j->src, is_root ? counts : NULL, j->dst, n, op->type,
				    op->root, q);
		break;
	case BARRIER: rc = kolo_barrier(c->c, q); break;
	default:
		rc = j->sends ? kolo_send(c->c, j->src, op->n, op->type, op->to, q)
			      : kolo_recv(c->c, j->dst, op->n, op->type, op->from, q);
	}
	CHECK(rc == 0);
}

static struct op pick_op(struct program *p, int nranks, uint64_t id, bool message)
{
	static const enum kolo_op ops[] = { KOLO_SUM,  KOLO_PROD, KOLO_MIN, KOLO_MAX,
					    KOLO_AVG,  KOLO_BAND, KOLO_BOR, KOLO_BXOR,
					    KOLO_LAND, KOLO_LOR,  KOLO_LXOR };
	uint64_t *state = &p->shared;
	/* The second communicator is halves: an operation on it is one for each half, with ranks of
	 * the smaller. */
	struct op op = { .id = id, .comm = (int)pick(state, NCOMMS) };
	int ranks = op.comm == 1 ? nranks / 2 : nranks;

	op.kind = message ? MESSAGE : (enum kind)pick(state, NKINDS);
	op.type = (enum kolo_type)pick(state, NTYPES);
	op.op = reduces(op.kind) ? ops[pick(state, is_float(op.type) ? 5 : ARRAY_LEN(ops))]
				 : KOLO_SUM;
	if (op.op == KOLO_AVG && is_float(op.type) && (nranks & (nranks - 1) || op.comm == 1))
		op.op = KOLO_SUM; /* shares would be rounded */
	op.n = op.kind == BARRIER ? 0 : pick_n(state);
	op.root = (int)pick(state, (size_t)ranks);
	op.from = (int)pick(state, (size_t)ranks);
	op.to = (int)pick(state, (size_t)ranks);
	op.in_place = pick(state, 3) == 0;
	for (int r = 0; r < MOST_RANKS; r++)
		for (int k = 0; k < MOST_RANKS; k++)
			op.counts[r][k] = pick_n(state) / MOST_RANKS;
	return op;
}

/* What is done of it by this rank: nothing, one call, or both ends of a message. */
static int make_jobs(struct program *p, const struct op *op)
{
	const struct comm *c = &p->comms[op->comm];
	int first = p->njobs;

	if (c->rank < 0)
		return 0;
	for (int end = 0; end < 2; end++) {
		struct job j = { .op = *op, .sends = end == 0 };
		size_t src_len;

		if (op->kind == MESSAGE ? c->rank != (j.sends ? op->from : op->to) : end > 0)
			continue;
		j.src = make_buffer(op, write_src, c, &src_len);
		j.want = make_buffer(op, write_dst, c, &j.len);
		CHECK((j.dst = malloc(j.len + 1)) != NULL);
		memset(j.dst, 0xa5, j.len + 1);
		if (op->in_place)
			put_in_place(&j, c, src_len);
		p->jobs[p->njobs++] = j;
	}
	return p->njobs - first;
}

static void flush(struct program *p)
{
	for (int k = 0; k < NQUEUES; k++)
		CHECK(kolo_queue_wait(p->queues[k]) == 0);
	for (int k = 0; k < p->njobs; k++) {
		struct job *j = &p->jobs[k];
		bool here = !(j->op.kind == MESSAGE && j->sends);

		if (here && (memcmp(j->dst, j->want, j->len) != 0 ||
			     (!j->dst_in_src && (unsigned char)j->dst[j->len] != 0xa5))) {
			fprintf(stderr,
				"operation %llu: kind %d, comm %d, n %zu, type %d, op %d: wrong\n",
				(unsigned long long)j->op.id, (int)j->op.kind, j->op.comm, j->op.n,
				(int)j->op.type, (int)j->op.op);
			CHECK(!"the result is right");
		}
		if (j->dst_in_src || j->src < j->dst || j->src > j->dst + j->len)
			free(j->src);
		if (!j->dst_in_src)
			free(j->dst);
		free(j->want);
	}
	p->njobs = 0;
}

static struct kolo_queue *pick_queue(struct program *p)
{
	size_t k = pick(&p->own, NQUEUES + 1);

	return k < NQUEUES ? p->queues[k] : NULL;
}

/* Several operations together; sends and recvs in any order, but in that of the program between the
 * same two ranks. */
static int run_group(struct program *p, int nranks, uint64_t id)
{
	int count = 1 + (int)pick(&p->shared, MOST_IN_GROUP / 2), order = (int)pick(&p->own, 3);
	struct op ops[MOST_IN_GROUP];

	for (int k = 0; k < count; k++)
		ops[k] = pick_op(p, nranks, id + (uint64_t)k, pick(&p->shared, 3) != 0);
	for (int k = 0; k < count; k++)
		make_jobs(p, &ops[k]);
	CHECK(kolo_group_begin() == 0);
	for (int round = 0; round < 2; round++) {
		for (int k = 0; k < p->njobs; k++) {
			struct job *j = &p->jobs[k];
			/* Order 0: as in the program; 1: recvs before all else; 2: sends before all
			 * else. */
			bool early =
				order == 0 || (j->op.kind == MESSAGE && j->sends == (order == 2));

			if (early == (round == 0))
				call(j, &p->comms[j->op.comm], pick_queue(p));
		}
	}
	CHECK(kolo_group_end() == 0);
	return count;
}

static void open_program(struct program *p, struct t_rank *r)
{
	bool tree = (t_seed() + (uint64_t)r->nranks) % 2;
	struct kolo_comm *all =
		t_comm_with(r, (struct kolo_comm_attr){ .order = tree ? "tree" : "ring" });
	int half = r->nranks / 2, color = r->rank < half       ? 0
					  : r->rank < 2 * half ? 1
							       : KOLO_NOCOLOR;

	*p = (struct program){ .shared = t_seed() };
	p->shared += (uint64_t)r->nranks * 1000;
	p->own = p->shared + 1 + (uint64_t)r->rank;
	p->comms[0].c = all;
	CHECK(kolo_comm_split(all, color, r->rank, &p->comms[1].c) == 0);
	CHECK(kolo_comm_split(all, 0, -r->rank, &p->comms[2].c) == 0);
	for (int k = 0; k < NCOMMS; k++) {
		struct comm *c = &p->comms[k];

		c->rank = c->c ? kolo_comm_rank(c->c) : -1;
		c->nranks = c->c ? kolo_comm_nranks(c->c) : 0;
	}
	for (int k = 0; k < NQUEUES; k++)
		CHECK(kolo_queue_create(&p->queues[k]) == 0);
}

static void random_program(struct t_rank *r)
{
	int ops = *(const int *)r->arg;
	struct program p;

	open_program(&p, r);
	for (int done = 0; done < ops;) {
		if (pick(&p.own, 20) == 0)
			usleep((useconds_t)pick(&p.own, 500));
		if (pick(&p.shared, 8) == 0) {
			flush(&p);
			done += run_group(&p, r->nranks, (uint64_t)done);
			flush(&p);
			continue;
		}
		struct op op = pick_op(&p, r->nranks, (uint64_t)done++, false);

		if (op.kind == MESSAGE && op.from == op.to)
			continue;
		for (int k = make_jobs(&p, &op); k > 0; k--)
			call(&p.jobs[p.njobs - k], &p.comms[op.comm], pick_queue(&p));
		if (p.njobs > MOST_JOBS / 2 || pick(&p.own, 30) == 0)
			flush(&p);
	}
	flush(&p);
	for (int k = 0; k < NQUEUES; k++)
		kolo_queue_destroy(p.queues[k]);
	for (int k = NCOMMS; k-- > 0;)
		kolo_comm_destroy(p.comms[k].c);
}

/* 10000 operations in all; a tenth of them under sanitizers. */
static void a_random_program_gives_the_sequential_result(void **state)
{
	int ops = t_is_slow() ? 200 : 2000;

	(void)state;
	make_encoded();
	for (int n = 2; n <= MOST_RANKS; n++)
		t_processes(n, random_program, &ops);
}

static void ranks_that_are_threads_run_it_too(void **state)
{
	int ops = 200;

	(void)state;
	make_encoded();
	for (int n = 2; n <= MOST_RANKS; n++)
		t_threads(n, random_program, &ops);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_random_program_gives_the_sequential_result),
		cmocka_unit_test(ranks_that_are_threads_run_it_too),
	};

	return t_main(tests, ARRAY_LEN(tests));
}
