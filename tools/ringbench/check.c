/* The data that ringbench sends, the results that must come out, and the bytes that the model
 * expects.
 *
 * Element i of rank r depends on r and on i modulo a prime, so that the expected result of each
 * block repeats too. It is computed once for one period (values.h), and compared as bytes. A prime
 * divides no slot, piece or block: bytes that land in the wrong place are found. */
#include "tools/ringbench/bench.h"

#include <stdlib.h>
#include <string.h>

enum { PERIOD = 509 };

/* The finalizer of splitmix64. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* Integers: any bits. Floating types: +-[0.5, 2), so that neither sums nor products leave the
 * range. */
static void make_element(enum kolo_type type, int rank, size_t i, void *out)
{
	uint64_t bits = mix((uint64_t)rank * PERIOD + i % PERIOD + 1);
	double x = 0.5 + 1.5 * (double)(bits >> 12) / (double)(1ULL << 52);

	values_make(type, bits, bits & 1 ? -x : x, out);
}

/* n elements of `rank`, from its first on. */
static void fill_pattern(enum kolo_type type, int rank, char *out, size_t n)
{
	size_t element = kolo_type_size(type), first = n < PERIOD ? n : PERIOD;

	for (size_t i = 0; i < first; i++)
		make_element(type, rank, i, out + i * element);
	for (size_t i = first; i < n; i += first)
		memcpy(out + i * element, out, (n - i < first ? n - i : first) * element);
}

const void *job_src(const struct bench *b, const struct job *j, bool in_place)
{
	size_t block = j->n * kolo_type_size(j->type);

	if (!in_place)
		return b->src;
	return b->dst + (j->coll == ALL_GATHER || j->coll == GATHER ? (size_t)b->rank * block : 0);
}

/* In place, the result of a reduce-scatter or scatter lies within its source; the same place serves
 * out of place. */
void *job_dst(const struct bench *b, const struct job *j)
{
	size_t block = j->n * kolo_type_size(j->type);

	return b->dst +
	       (j->coll == REDUCE_SCATTER || j->coll == SCATTER ? (size_t)b->rank * block : 0);
}

void fill_buffers(const struct bench *b, const struct job *j, bool in_place)
{
	bool has_all = j->coll == REDUCE_SCATTER || j->coll == ALL_TO_ALL ||
		       (j->coll == SCATTER && b->rank == j->root);
	size_t n = has_all ? j->n * (size_t)b->nranks : j->n;

	memset(b->dst, 0x5a, j->bytes);
	fill_pattern(j->type, b->rank, (char *)job_src(b, j, in_place), n);
}

/* An element of the vectors, for values_tree and values_grid. */
struct place {
	const struct bench *b;
	const struct job *j;
	size_t i;
};

static struct values_scale value_of(const void *arg, int rank, void *out)
{
	const struct place *p = arg;

	make_element(p->j->type, rank, p->i, out);
	return values_avg_scale(p->j->type, p->b->nranks);
}

/* Element i of the sequential result of the block that belongs to `owner`: added from the rank
 * after the owner round to the owner, or as the communicator's order says. */
static void expect_element(const struct bench *b, const struct job *j, int owner, size_t i,
			   void *out)
{
	struct values_scale scale = values_avg_scale(j->type, b->nranks);
	const struct place place = { b, j, i };
	char own[VALUES_SIZE];
	int rank = b->next[owner];

	if (strcmp(kolo_comm_order(b->comm), "ring") != 0) {
		if (strcmp(kolo_comm_order(b->comm), "tree") == 0)
			values_tree(j->type, j->op, false, 0, b->nranks, value_of, &place, out);
		else
			values_grid(b->comm, j->type, j->op, false, owner, value_of, &place, out);
		values_finish(j->type, j->op, b->nranks, out);
		return;
	}
	make_element(j->type, rank, i, own);
	values_first(j->type, j->op, false, scale, own, out);
	while (rank != owner) {
		rank = b->next[rank];
		make_element(j->type, rank, i, own);
		values_combine(j->type, j->op, false, scale, out, own);
	}
	values_finish(j->type, j->op, b->nranks, out);
}

/* Elements [first, first + n) of the vector are at p and belong to `owner`. */
static int64_t compare(const struct bench *b, const struct job *j, int owner, const char *p,
		       size_t first, size_t n)
{
	size_t element = kolo_type_size(j->type);
	char *want = malloc(PERIOD * element);
	int64_t wrong = 0;
	int adds_as = j->coll == REDUCE && kolo_comm_groups(b->comm)
			      ? values_grid_owner(b->comm, owner, j->root)
			      : owner;

	if (!want)
		return -1;
	for (size_t i = 0; i < PERIOD && i < n; i++) {
		if (collective_reduces(j->coll))
			expect_element(b, j, adds_as, first + i, want + i * element);
		else
			make_element(j->type, owner, first + i, want + i * element);
	}
	for (size_t i = 0; i < n; i += PERIOD) {
		size_t some = n - i < PERIOD ? n - i : PERIOD;

		if (memcmp(p + i * element, want, some * element) == 0)
			continue;
		for (size_t k = 0; k < some; k++)
			wrong += memcmp(p + (i + k) * element, want + k * element, element) != 0;
	}
	free(want);
	return wrong;
}

/* dst is made of a part of each rank, or belongs to all. */
static int64_t count_wrong_parts(const struct bench *b, const struct job *j)
{
	size_t element = kolo_type_size(j->type), nranks = (size_t)b->nranks;
	bool shared = j->coll == ALL_REDUCE || j->coll == REDUCE;
	size_t block = shared ? (j->n + nranks - 1) / nranks : j->n;
	size_t total = collective_is_per_rank(j->coll) ? j->n * nranks : j->n;
	const char *dst = job_dst(b, j);
	int64_t wrong = 0, more;

	for (int owner = 0; owner < b->nranks; owner++) {
		size_t first = (size_t)owner * block < total ? (size_t)owner * block : total;
		size_t n = total - first < block ? total - first : block, in_src = first;

		/* What a rank gave to a gather is numbered from its own first element; to an
		 * all_to_all it gave us that part. */
		if (j->coll == ALL_GATHER || j->coll == GATHER)
			in_src = 0;
		else if (j->coll == ALL_TO_ALL)
			in_src = (size_t)b->rank * block;
		more = compare(b, j, owner, dst + first * element, in_src, n);
		if (more < 0)
			return more;
		wrong += more;
	}
	return wrong;
}

int64_t count_wrong(const struct bench *b, const struct job *j)
{
	const char *dst = job_dst(b, j);
	size_t own_first = (size_t)b->rank * j->n;
	bool is_root = b->rank == j->root;

	switch (j->coll) {
	case REDUCE_SCATTER: return compare(b, j, b->rank, dst, own_first, j->n);
	case SCATTER: return compare(b, j, j->root, dst, own_first, j->n);
	case BROADCAST: return compare(b, j, j->root, dst, 0, j->n);
	case REDUCE: /* in the order of root, or with root's group and the numbers of ranks */
		if (is_root && kolo_comm_groups(b->comm))
			return count_wrong_parts(b, j);
		return is_root ? compare(b, j, j->root, dst, 0, j->n) : 0;
	case GATHER: return is_root ? count_wrong_parts(b, j) : 0;
	case SEND_RECV: return partner(b) < 0 ? 0 : compare(b, j, partner(b), dst, 0, j->n);
	case BARRIER: return 0;
	default: return count_wrong_parts(b, j);
	}
}

int partner(const struct bench *b)
{
	int half = b->nranks / 2;

	return b->rank < half ? b->rank + half : b->rank < 2 * half ? b->rank - half : -1;
}

const char *algorithm_in_table(const struct bench *b, enum collective coll, size_t bytes)
{
	struct kolo_algorithm row;

	for (int i = 0; kolo_algorithm_get(b->comm, i, &row) == 0; i++)
		if (strcmp(row.collective, collective_name(coll)) == 0 && bytes >= row.min_bytes &&
		    bytes <= row.max_bytes &&
		    (b->options->memory == ALLOC || strcmp(row.memory, "any") == 0))
			return row.name;
	return "none";
}

/* The model for direct operations. A rank reads what it needs, and writes what it has added up. Its
 * bytes are those that it writes.
 *
 * In plain memory, root of a large broadcast in place writes a share to each other rank, and root
 * alone does a small reduce. If the buffers are Kolo's, a rank also writes its share of a
 * broadcast, and its part of an all-gather, to all others that need it. */
static uint64_t direct_bytes(const struct bench *b, const struct job *j, bool in_place)
{
	enum { LARGE_BROADCAST = 32 << 10, LARGE_REDUCE = 256 << 10 };
	size_t nranks = (size_t)b->nranks, element = kolo_type_size(j->type), readers = nranks - 1;
	size_t part = (j->n + nranks - 1) / nranks, first = (size_t)b->rank * part;
	size_t own = first >= j->n ? 0 : j->n - first < part ? j->n - first : part;
	bool is_root = b->rank == j->root;

	if (b->options->memory == REGISTERED && j->coll == BROADCAST) /* root writes all of it */
		return is_root ? readers * j->bytes : 0;
	if (b->options->memory == REGISTERED && j->coll == REDUCE) /* and reads */
		return 0;
	if (b->options->memory != ALLOC && b->options->memory != REGISTERED &&
	    j->coll != ALL_REDUCE && !(j->coll == REDUCE && j->bytes >= LARGE_REDUCE))
		return j->coll == BROADCAST && in_place && is_root && j->bytes >= LARGE_BROADCAST
			       ? readers * (j->n / nranks) * element
			       : 0;
	if (j->coll == ALL_GATHER)
		own = j->n;
	if (j->coll == REDUCE_SCATTER || (j->coll == REDUCE && is_root))
		readers = 0;
	else if (j->coll == REDUCE)
		readers = 1;
	if (j->coll == BROADCAST && in_place && !is_root)
		readers--;
	return readers * own * element;
}

/* The model for the board: a rank writes once what others read of its vector. In a broadcast only
 * root writes, in a reduce only the others. */
static uint64_t board_bytes(const struct bench *b, const struct job *j)
{
	bool is_root = b->rank == j->root;
	uint64_t own = j->n * kolo_type_size(j->type);

	switch (j->coll) {
	case BROADCAST: return is_root ? j->bytes : 0;
	case REDUCE: return is_root ? 0 : j->bytes;
	case REDUCE_SCATTER: return j->bytes - own;
	case ALL_GATHER: return own;
	default: return j->bytes;
	}
}

/* The model for slices: the same; but in a reduction to all or to root a rank writes all parts
 * except its own, and the sums of its own. */
static uint64_t slices_bytes(const struct bench *b, const struct job *j)
{
	return j->coll == REDUCE ? j->bytes : board_bytes(b, j);
}

/* The model for the ring: the blocks that a rank passes on. In a reduce-scatter these are all
 * except its own, in an all-gather all except its next's. In a broadcast or reduce every rank
 * passes the whole vector on, except the last one of the chain. */
static uint64_t ring_bytes(const struct bench *b, const struct job *j)
{
	int rank = b->rank, nranks = b->nranks;
	size_t total = collective_is_per_rank(j->coll) ? j->n * (size_t)nranks : j->n, sum = 0;
	size_t block = (total + (size_t)nranks - 1) / (size_t)nranks;

	for (int owner = 0; owner < nranks; owner++) {
		size_t first = (size_t)owner * block < total ? (size_t)owner * block : total;
		size_t n = total - first < block ? total - first : block;

		if (j->coll != ALL_GATHER && owner != rank)
			sum += n;
		if (j->coll != REDUCE_SCATTER && owner != b->next[rank])
			sum += n;
	}
	if (j->coll == BROADCAST)
		sum = b->next[rank] == j->root ? 0 : total;
	if (j->coll == REDUCE)
		sum = rank == j->root ? 0 : total;
	return sum * kolo_type_size(j->type);
}

uint64_t pair_bytes(const struct bench *b, const struct job *j)
{
	uint64_t part = j->n * kolo_type_size(j->type), others = (uint64_t)b->nranks - 1;
	bool is_root = b->rank == j->root;

	switch (j->coll) {
	case ALL_TO_ALL: return others * part;
	case GATHER: return is_root ? 0 : part;
	case SCATTER: return is_root ? others * part : 0;
	default: return part;
	}
}

/* The model for the exchange, an all-reduce: a rank sends to next the vectors of all ranks except
 * next's. */
static uint64_t exchange_bytes(const struct bench *b, const struct job *j)
{
	return ((uint64_t)b->nranks - 1) * j->n * kolo_type_size(j->type);
}

/* The model for pairwise: a rank sends the blocks of all others, and its sum to those that need
 * it. */
static uint64_t pairwise_bytes(const struct bench *b, const struct job *j)
{
	size_t nranks = (size_t)b->nranks, rank = (size_t)b->rank;
	size_t total = collective_is_per_rank(j->coll) ? j->n * nranks : j->n;
	size_t block = (total + nranks - 1) / nranks;
	size_t first = rank * block < total ? rank * block : total;
	size_t own = total - first < block ? total - first : block, readers = 0;

	if (j->coll == ALL_REDUCE)
		readers = nranks - 1;
	else if (j->coll == REDUCE && b->rank != j->root)
		readers = 1;
	return (total - own + readers * own) * kolo_type_size(j->type);
}

/* Does what comes from number `from` pass `at` on the way round n numbers to `to`, and go on? */
static bool passes(int from, int at, int to, int n)
{
	return (at - from + n) % n < (to - from + n) % n;
}

/* How often a rank sends a block of `owner` in the grid, without a root: its number in the group,
 * or its group, is `at` of n, and the owner's is `own`. Sums go to the owner's, and what is
 * complete goes from it to all. */
static int times_sent(const struct job *j, int at, int own, int n)
{
	bool adds = j->coll != ALL_GATHER && passes((own + 1) % n, at, own, n);
	bool spreads = j->coll != REDUCE_SCATTER && passes(own, at, (own + n - 1) % n, n);

	return adds + spreads;
}

/* The same, with a root. Of each group, sums go to the owner's number, along that rail to root's
 * group, and there to root. A broadcast goes round root's group, along all rails, and then round
 * each other group. */
static int times_with_root(const struct job *j, struct values_place me, int number,
			   struct values_place root, int groups, int size)
{
	bool on_rail = me.number == number, at_root = me.group == root.group;
	int last = (root.group + groups - 1) % groups, end = (root.number + size - 1) % size;

	if (j->coll == REDUCE)
		return passes((number + 1) % size, me.number, number, size) +
		       (on_rail &&
			passes((root.group + 1) % groups, me.group, root.group, groups)) +
		       (at_root && passes(number, me.number, root.number, size));
	return (on_rail && passes(root.group, me.group, last, groups)) +
	       (at_root ? passes(root.number, me.number, end, size)
			: passes(number, me.number, (number + size - 1) % size, size));
}

static uint64_t grid_bytes(const struct bench *b, const struct job *j)
{
	int groups = kolo_comm_groups(b->comm), size = b->nranks / groups;
	size_t total = collective_is_per_rank(j->coll) ? j->n * (size_t)b->nranks : j->n, sum = 0;
	size_t block = (total + (size_t)b->nranks - 1) / (size_t)b->nranks;
	bool rooted = j->coll == REDUCE || j->coll == BROADCAST;
	struct values_place me = values_grid_place(b->comm, b->rank);
	struct values_place root = values_grid_place(b->comm, rooted ? j->root : 0);

	for (int owner = 0; owner < b->nranks; owner++) {
		struct values_place own = values_grid_place(b->comm, owner);
		size_t first = (size_t)owner * block < total ? (size_t)owner * block : total;
		size_t n = total - first < block ? total - first : block;
		int times;

		if (rooted)
			times = times_with_root(j, me, own.number, root, groups, size);
		else
			times = times_sent(j, me.number, own.number, size) +
				(me.number == own.number
					 ? times_sent(j, me.group, own.group, groups)
					 : 0);
		sum += (size_t)times * n;
	}
	return sum * kolo_type_size(j->type);
}

uint64_t model_bytes(const struct bench *b, const struct job *j, bool in_place,
		     const struct counts *s)
{
	if (b->nranks == 1)
		return 0;
	/* Who shares a host, and what was measured between hosts, only the library knows. */
	if (s->ops[DOUBLING] || s->ops[PARTIALS] || s->ops[CENTER] || s->ops[SHARES])
		return s->model;
	return s->ops[DIRECT] * direct_bytes(b, j, in_place) + s->ops[BOARD] * board_bytes(b, j) +
	       s->ops[SLICES] * slices_bytes(b, j) + s->ops[RING] * ring_bytes(b, j) +
	       s->ops[EXCHANGE] * exchange_bytes(b, j) + s->ops[PAIRWISE] * pairwise_bytes(b, j) +
	       (s->ops[GRID] ? s->ops[GRID] * grid_bytes(b, j) : 0);
}
