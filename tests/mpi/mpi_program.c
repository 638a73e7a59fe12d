/* A program of MPI, for test_mpi.py: it knows nothing of Kolo.
 *
 * usage: mpi_program random PROGRAMS SEED | progress N | die PLACE | many | free
 *
 * random: collectives of every kind, one after the other, on several communicators. What all ranks
 * must agree on is drawn from SEED; what they need not is drawn apart by each: types of the same
 * signature, gaps, an order of their own, in place or not. Each result is checked by its
 * definition. progress: the N-th program that ends only if a rank that waits lets MPI go on. die:
 * rank 1 is killed; the others print what MPI says. many: communicators of the same ranks, in the
 * same order or another one, of which three are there at a time. free: communicators are freed
 * behind a collective that some ranks have not ended yet. Prints "good" on rank 0. */
#define _GNU_SOURCE
#include <mpi.h>

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 3000, MOST_RANKS = 16 };

static int rank, nranks; /* in the communicator that is used */

static void fail(const char *what, const char *detail)
{
	fprintf(stderr, "# rank %d: not true: %s (%s)\n", rank, what, detail);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

#define CHECK(x, detail)                                                                           \
	do {                                                                                       \
		if (!(x))                                                                          \
			fail(#x, detail);                                                          \
	} while (0)

static uint64_t draw(uint64_t *seed, uint64_t below)
{
	*seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (*seed >> 33) % below;
}

/* ---- Elements -------------------------------------------------------------------------------- */

/* Element i that `from` has for `to`: small, so that sums are exact in every type. */
static int element(int from, int to, size_t i)
{
	return (int)((from * 7 + to * 3 + (int)(i % 1000)) % 50);
}

/* ---- Layouts: n ints, each rank in its own way ----------------------------------------------- */

enum layout { PLAIN, BYTES, CONTIGUOUS, GAPS, REVERSED, COPY, NLAYOUTS };

struct memory {
	MPI_Datatype type; /* of `each` ints */
	enum layout layout;
	int each;
	int *at;     /* where MPI finds it */
	size_t room; /* ints */
};

/* How far elements lie apart in memory, in ints. */
static size_t stride(enum layout layout)
{
	return layout == GAPS ? 3 : 1;
}

/* A type for the ints of `each`, which divides all numbers of ints that are used with it. */
static void open_memory(struct memory *m, uint64_t *own, size_t n, int each)
{
	int ones[8], at[8];

	*m = (struct memory){ .layout = (enum layout)draw(own, NLAYOUTS), .each = each };
	m->room = n * stride(m->layout) + 8;
	m->at = malloc(m->room * sizeof(int));
	for (size_t k = 0; k < m->room; k++)
		m->at[k] = -1;
	for (int k = 0; k < each; k++) {
		ones[k] = 1;
		at[k] = each - 1 - k;
	}
	switch (m->layout) {
	case PLAIN:
		MPI_Type_contiguous(1, MPI_INT, &m->type);
		m->each = 1;
		break;
	case BYTES: MPI_Type_contiguous(4 * each, MPI_BYTE, &m->type); break;
	case CONTIGUOUS: MPI_Type_contiguous(each, MPI_INT, &m->type); break;
	case GAPS: {
		MPI_Datatype v;

		MPI_Type_vector(each, 1, 3, MPI_INT, &v);
		MPI_Type_create_resized(v, 0, 12 * each, &m->type);
		MPI_Type_free(&v);
		break;
	}
	case REVERSED: MPI_Type_indexed(each, ones, at, MPI_INT, &m->type); break;
	default: {
		MPI_Datatype c;

		MPI_Type_contiguous(each, MPI_INT, &c);
		MPI_Type_dup(c, &m->type);
		MPI_Type_free(&c);
	}
	}
	MPI_Type_commit(&m->type);
}

/* Bytes may not stand beside ints in one call: the signature is another one. */
static void make_ints(struct memory *m)
{
	if (m->layout != BYTES)
		return;
	MPI_Type_free(&m->type);
	MPI_Type_contiguous(m->each, MPI_INT, &m->type);
	MPI_Type_commit(&m->type);
	m->layout = CONTIGUOUS;
}

static void close_memory(struct memory *m)
{
	MPI_Type_free(&m->type);
	free(m->at);
}

/* Where int k of a buffer lies, in ints from its beginning. */
static size_t place_of(const struct memory *m, size_t k)
{
	size_t e = (size_t)m->each;

	return m->layout == REVERSED ? k / e * e + (e - 1 - k % e) : k * stride(m->layout);
}

static int *int_at(const struct memory *m, size_t k)
{
	return m->at + place_of(m, k);
}

static int count_of(const struct memory *m, size_t n)
{
	return (int)(n / (size_t)m->each);
}

static void put(const struct memory *m, size_t first, size_t n, int from, int to)
{
	for (size_t i = 0; i < n; i++)
		*int_at(m, first + i) = element(from, to, i);
}

static void check(const struct memory *m, size_t first, size_t n, int from, int to,
		  const char *what)
{
	for (size_t i = 0; i < n; i++)
		CHECK(*int_at(m, first + i) == element(from, to, i), what);
}

/* ---- Collectives that move ------------------------------------------------------------------- */

/* Ints of a part between two ranks; all know. A multiple of `each`. */
static size_t part_of(uint64_t program, int from, int to, int each)
{
	uint64_t seed = program * 1009 + (uint64_t)from * 97 + (uint64_t)to * 13;

	draw(&seed, 2);
	return draw(&seed, 4) ? draw(&seed, 200) * (size_t)each : 0;
}

static void move_even(MPI_Comm comm, int call, uint64_t *shared, uint64_t *own)
{
	int each = 1 + (int)draw(shared, 6), root = (int)draw(shared, (uint64_t)nranks);
	size_t n = draw(shared, MOST / 8) * (size_t)each, all = n * (size_t)nranks;
	bool in_place = draw(own, 2), at_root = rank == root;
	struct memory a, b;

	if (call == 4) /* MPI wants all ranks to do that alike */
		in_place = draw(shared, 2);
	open_memory(&a, own, all, each);
	open_memory(&b, own, all, each);
	make_ints(&a);
	make_ints(&b);
	switch (call) {
	case 0: /* bytes on all ranks, or ints on all */
		if (at_root)
			put(&a, 0, n, root, 0);
		MPI_Bcast(a.at, count_of(&a, n), a.type, root, comm);
		check(&a, 0, n, root, 0, "broadcast");
		break;
	case 1:
		in_place = in_place && at_root;
		put(in_place ? &b : &a, in_place ? (size_t)rank * n : 0, n, rank, root);
		MPI_Gather(in_place ? MPI_IN_PLACE : a.at, count_of(&a, n), a.type, b.at,
			   count_of(&b, n), b.type, root, comm);
		for (int r = 0; r < nranks && at_root; r++)
			check(&b, (size_t)r * n, n, r, root, "gather");
		break;
	case 2:
		in_place = in_place && at_root;
		for (int r = 0; r < nranks; r++)
			put(&a, (size_t)r * n, n, root, r);
		MPI_Scatter(a.at, count_of(&a, n), a.type, in_place ? MPI_IN_PLACE : b.at,
			    count_of(&b, n), b.type, root, comm);
		check(in_place ? &a : &b, in_place ? (size_t)rank * n : 0, n, root, rank,
		      "scatter");
		break;
	case 3:
		in_place = draw(shared, 2);
		put(in_place ? &b : &a, in_place ? (size_t)rank * n : 0, n, rank, 0);
		MPI_Allgather(in_place ? MPI_IN_PLACE : a.at, count_of(&a, n), a.type, b.at,
			      count_of(&b, n), b.type, comm);
		for (int r = 0; r < nranks; r++)
			check(&b, (size_t)r * n, n, r, 0, "allgather");
		break;
	default:
		for (int r = 0; r < nranks; r++)
			put(in_place ? &b : &a, (size_t)r * n, n, rank, r);
		MPI_Alltoall(in_place ? MPI_IN_PLACE : a.at, count_of(&a, n), a.type, b.at,
			     count_of(&b, n), b.type, comm);
		for (int r = 0; r < nranks; r++)
			check(&b, (size_t)r * n, n, r, rank, "alltoall");
	}
	close_memory(&a);
	close_memory(&b);
}

/* Parts of a buffer, with or without gaps between them, in ints and in elements. */
struct parts {
	size_t ints[MOST_RANKS], first[MOST_RANKS], all;
	int counts[MOST_RANKS], displs[MOST_RANKS];
};

static void lay_out(struct parts *p, const struct memory *m, uint64_t *own)
{
	size_t gap = draw(own, 2) ? (size_t)m->each : 0;

	p->all = 0;
	for (int r = 0; r < nranks; r++) {
		p->first[r] = p->all;
		p->counts[r] = count_of(m, p->ints[r]);
		p->displs[r] = count_of(m, p->first[r]);
		p->all += p->ints[r] + gap;
	}
}

static void move_uneven(MPI_Comm comm, int call, uint64_t program, uint64_t *shared, uint64_t *own)
{
	int each = 1 + (int)draw(shared, 6), root = (int)draw(shared, (uint64_t)nranks);
	bool in_place = draw(shared, 2);
	size_t room = (size_t)nranks * 201 * (size_t)each, mine;
	struct parts to = { 0 }, from = { 0 };
	struct memory a, b;

	open_memory(&a, own, room, each);
	open_memory(&b, own, room, each);
	make_ints(&a);
	make_ints(&b);
	for (int r = 0; r < nranks; r++) {
		to.ints[r] = part_of(program, call == 1 ? root : rank, r, each);
		from.ints[r] = part_of(program, r, call == 3 ? rank : root, each);
	}
	lay_out(&to, &a, own);
	lay_out(&from, &b, own);
	mine = call == 1 ? to.ints[rank] : from.ints[rank];
	switch (call) {
	case 0:
		in_place = in_place && rank == root;
		put(in_place ? &b : &a, in_place ? from.first[rank] : 0, mine, rank, root);
		MPI_Gatherv(in_place ? MPI_IN_PLACE : a.at, count_of(&a, mine), a.type, b.at,
			    from.counts, from.displs, b.type, root, comm);
		for (int r = 0; r < nranks && rank == root; r++)
			check(&b, from.first[r], from.ints[r], r, root, "gatherv");
		break;
	case 1:
		in_place = in_place && rank == root;
		for (int r = 0; r < nranks; r++)
			put(&a, to.first[r], to.ints[r], root, r);
		MPI_Scatterv(a.at, to.counts, to.displs, a.type, in_place ? MPI_IN_PLACE : b.at,
			     count_of(&b, mine), b.type, root, comm);
		check(in_place ? &a : &b, in_place ? to.first[rank] : 0, mine, root, rank,
		      "scatterv");
		break;
	case 2:
		put(in_place ? &b : &a, in_place ? from.first[rank] : 0, mine, rank, root);
		MPI_Allgatherv(in_place ? MPI_IN_PLACE : a.at, count_of(&a, mine), a.type, b.at,
			       from.counts, from.displs, b.type, comm);
		for (int r = 0; r < nranks; r++)
			check(&b, from.first[r], from.ints[r], r, root, "allgatherv");
		break;
	default:
		for (int r = 0; r < nranks; r++)
			put(&a, to.first[r], to.ints[r], rank, r);
		MPI_Alltoallv(a.at, to.counts, to.displs, a.type, b.at, from.counts, from.displs,
			      b.type, comm);
		for (int r = 0; r < nranks; r++)
			check(&b, from.first[r], from.ints[r], r, rank, "alltoallv");
	}
	close_memory(&a);
	close_memory(&b);
}

/* ---- Reductions ------------------------------------------------------------------------------ */

static double value(int from, size_t i)
{
	return 1 + element(from, 0, i) % 3;
}

static double sum_of(MPI_Op op, size_t i)
{
	double x = value(0, i);

	for (int r = 1; r < nranks; r++) {
		double y = value(r, i);

		if (op == MPI_SUM)
			x += y;
		else if (op == MPI_PROD)
			x *= y;
		else if (op == MPI_MIN)
			x = x < y ? x : y;
		else if (op == MPI_MAX)
			x = x > y ? x : y;
		else if (op == MPI_BXOR)
			x = (double)((int)x ^ (int)y);
		else
			x = x != 0 && y != 0;
	}
	return op == MPI_LAND && nranks > 1 ? x != 0 : x; /* of one rank it is a copy */
}

static void store(MPI_Datatype type, void *at, size_t i, double x)
{
	if (type == MPI_DOUBLE)
		((double *)at)[i] = x;
	else if (type == MPI_FLOAT)
		((float *)at)[i] = (float)x;
	else if (type == MPI_SHORT)
		((short *)at)[i] = (short)x;
	else if (type == MPI_UNSIGNED_CHAR)
		((unsigned char *)at)[i] = (unsigned char)x;
	else if (type == MPI_LONG)
		((long *)at)[i] = (long)x;
	else
		((int *)at)[i] = (int)x;
}

static void combine(MPI_Comm comm, int call, uint64_t *shared, uint64_t *own)
{
	MPI_Datatype types[] = { MPI_INT,   MPI_DOUBLE, MPI_LONG,
				 MPI_FLOAT, MPI_SHORT,  MPI_UNSIGNED_CHAR };
	MPI_Op ops[] = { MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD, MPI_BXOR, MPI_LAND };
	MPI_Datatype type = types[draw(shared, 6)];
	bool real = type == MPI_DOUBLE || type == MPI_FLOAT, blocks = call == 2 || call == 3;
	MPI_Op op = ops[draw(shared, real ? 4 : 6)];
	int root = (int)draw(shared, (uint64_t)nranks), counts[MOST_RANKS], size;
	size_t n = draw(shared, MOST / (size_t)nranks), all = blocks ? n * (size_t)nranks : n;
	bool in_place = draw(call == 1 ? own : shared, 2) && (call != 1 || rank == root);
	char *src = calloc(MOST + 8, 8), *dst = calloc(MOST + 8, 8), *want = calloc(MOST + 8, 8);
	size_t first = blocks ? (size_t)rank * n : 0;

#ifdef MPICH_VERSION /* 4.0.2 reads MPI_IN_PLACE at another root than 0 */
	in_place = in_place && (call != 1 || root == 0);
#endif
	MPI_Type_size(type, &size);
	for (int r = 0; r < nranks; r++)
		counts[r] = (int)n;
	for (size_t i = 0; i < all; i++)
		store(type, in_place ? dst : src, i, value(rank, i));
	for (size_t i = 0; i < n; i++)
		store(type, want, i, sum_of(op, first + i));
	switch (call) {
	case 0: MPI_Allreduce(in_place ? MPI_IN_PLACE : src, dst, (int)n, type, op, comm); break;
	case 1: MPI_Reduce(in_place ? MPI_IN_PLACE : src, dst, (int)n, type, op, root, comm); break;
	case 2:
		MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : src, dst, (int)n, type, op,
					 comm);
		break;
	default: MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : src, dst, counts, type, op, comm);
	}
	if (call != 1 || rank == root)
		CHECK(memcmp(dst, want, n * (size_t)size) == 0, "a reduction");
	free(src);
	free(dst);
	free(want);
}

/* ---- Reductions of other kinds --------------------------------------------------------------- */

/* One call with an element's worth of everything; src may be MPI_IN_PLACE. */
static void reduce(int call, const void *src, void *dst, int n, MPI_Datatype type, MPI_Op op,
		   int root, MPI_Comm comm)
{
	int counts[MOST_RANKS];

	for (int r = 0; r < nranks; r++)
		counts[r] = n;
	switch (call) {
	case 0: MPI_Allreduce(src, dst, n, type, op, comm); break;
	case 1: MPI_Reduce(src, dst, n, type, op, root, comm); break;
	case 2: MPI_Reduce_scatter_block(src, dst, n, type, op, comm); break;
	default: MPI_Reduce_scatter(src, dst, counts, type, op, comm);
	}
}

/* MPI's pairs with the largest values: element i of a rank is its value and a place. */
struct pair {
	const MPI_Datatype *type;
	size_t len, place_at; /* of a pair; where its place is */
	char kind;            /* of the value: as a letter of C's, or L for long double */
};

static void set_pair(const struct pair *p, char *at, double x, int place)
{
	switch (p->kind) {
	case 'd': memcpy(at, &x, sizeof(x)); break;
	case 'f': memcpy(at, &(float){ (float)x }, sizeof(float)); break;
	case 'L': *(long double *)(void *)at = (long double)x; break;
	case 'l': memcpy(at, &(long){ (long)x }, sizeof(long)); break;
	case 's': memcpy(at, &(short){ (short)x }, sizeof(short)); break;
	default: memcpy(at, &(int){ (int)x }, sizeof(int));
	}
	memcpy(at + p->place_at, &place, sizeof(place));
}

static void reduce_pairs(MPI_Comm comm, int call, uint64_t *shared)
{
	const MPI_Datatype types[] = { MPI_DOUBLE_INT, MPI_2INT,      MPI_FLOAT_INT,
				       MPI_LONG_INT,   MPI_SHORT_INT, MPI_LONG_DOUBLE_INT };
	const struct pair pairs[] = {
		{ &types[0], 16, 8, 'd' }, { &types[1], 8, 4, 'i' }, { &types[2], 8, 4, 'f' },
		{ &types[3], 16, 8, 'l' }, { &types[4], 8, 4, 's' }, { &types[5], 32, 16, 'L' },
	};
	const struct pair *p = &pairs[draw(shared, 6)];
	bool most = draw(shared, 2), in_place = draw(shared, 2) && call != 1;
	int n = (int)draw(shared, 400), root = (int)draw(shared, (uint64_t)nranks);
	size_t blocks = call > 1 ? (size_t)nranks : 1, first = call > 1 ? (size_t)(rank * n) : 0;
	char *src = calloc(401 * blocks, 32), *dst = calloc(401 * blocks, 32), *want = malloc(32);

	for (size_t i = 0; i < (size_t)n * blocks; i++)
		set_pair(p, (in_place ? dst : src) + i * p->len, value(rank, i),
			 element(0, rank, i));
	reduce(call, in_place ? MPI_IN_PLACE : src, dst, n, *p->type,
	       most ? MPI_MAXLOC : MPI_MINLOC, root, comm);
	for (size_t i = 0; i < (size_t)n && (call != 1 || rank == root); i++) {
		double best = value(0, first + i);
		int place = element(0, 0, first + i);

		for (int r = 1; r < nranks; r++) {
			double x = value(r, first + i);
			int other = element(0, r, first + i);

			if (x == best ? other < place : (x > best) == most) {
				best = x;
				place = other;
			}
		}
		memcpy(want, dst + i * p->len, p->len); /* and what is unused */
		set_pair(p, want, best, place);
		CHECK(memcmp(dst + i * p->len, want, p->len) == 0, "a pair");
	}
	free(src);
	free(dst);
	free(want);
}

/* Of small whole numbers products are exact. */
static void reduce_numbers(MPI_Comm comm, int call, uint64_t *shared)
{
	bool complex = draw(shared, 2), product = draw(shared, 2), in_place = draw(shared, 2);
	int n = (int)draw(shared, 300), root = (int)draw(shared, (uint64_t)nranks);
	size_t blocks = call > 1 ? (size_t)nranks : 1, first = call > 1 ? (size_t)(rank * n) : 0;
	size_t all = (size_t)n * blocks;
	double _Complex *c = calloc(all + 1, sizeof(*c)), *d = calloc(all + 1, sizeof(*d));
	long double *x = calloc(all + 1, sizeof(*x)), *y = calloc(all + 1, sizeof(*y));

	in_place = in_place && call != 1;
	for (size_t i = 0; i < all; i++) {
		(in_place ? d : c)[i] = value(rank, i) + 1.0i * element(rank, 1, i);
		(in_place ? y : x)[i] = (long double)value(rank, i);
	}
	if (complex)
		reduce(call, in_place ? MPI_IN_PLACE : c, d, n, MPI_C_DOUBLE_COMPLEX,
		       product ? MPI_PROD : MPI_SUM, root, comm);
	else
		reduce(call, in_place ? MPI_IN_PLACE : x, y, n, MPI_LONG_DOUBLE,
		       product ? MPI_PROD : MPI_SUM, root, comm);
	for (size_t i = first; i < first + (size_t)n && (call != 1 || rank == root); i++) {
		double _Complex want = value(0, i) + 1.0i * element(0, 1, i);

		for (int r = 1; r < nranks; r++) {
			double _Complex other = value(r, i) + 1.0i * element(r, 1, i);

			want = product ? want * other : want + other;
		}
		if (complex)
			CHECK(d[i - first] == want, "complex numbers");
		else
			CHECK(y[i - first] == (long double)sum_of(product ? MPI_PROD : MPI_SUM, i),
			      "long doubles");
	}
	free(c);
	free(d);
	free(x);
	free(y);
}

static const struct memory *reduced; /* what the operations below combine */

static void own_sum(void *in, void *inout, int *len, MPI_Datatype *type)
{
	size_t n = (size_t)*len * (size_t)reduced->each;

	CHECK(*type == reduced->type, "the type of an own operation");
	for (size_t k = 0; k < n; k++)
		((int *)inout)[place_of(reduced, k)] += ((int *)in)[place_of(reduced, k)];
}

/* On a type of the program's, with gaps or in another order. */
static void reduce_own(MPI_Comm comm, int call, uint64_t *shared)
{
	int each = 1 + (int)draw(shared, 6), root = (int)draw(shared, (uint64_t)nranks);
	size_t n = draw(shared, 60) * (size_t)each, blocks = call > 1 ? (size_t)nranks : 1;
	size_t first = call > 1 ? (size_t)rank * n : 0;
	bool in_place = draw(shared, 2) && call != 1;
	struct memory a, b;
	uint64_t layout = draw(shared, 1000);
	MPI_Op op;

	open_memory(&a, &(uint64_t){ layout }, n * blocks, each);
	open_memory(&b, &(uint64_t){ layout }, n * blocks, each);
	put(in_place ? &b : &a, 0, n * blocks, rank, 5);
	reduced = in_place ? &b : &a;
	MPI_Op_create(own_sum, 1, &op);
	reduce(call, in_place ? MPI_IN_PLACE : a.at, b.at, count_of(&a, n), reduced->type, op, root,
	       comm);
	MPI_Op_free(&op);
	for (size_t i = 0; i < n && (call != 1 || rank == root); i++) {
		int want = 0;

		for (int r = 0; r < nranks; r++)
			want += element(r, 5, first + i);
		CHECK(*int_at(&b, i) == want, "an own operation");
	}
	close_memory(&a);
	close_memory(&b);
}

static void last_of(void *in, void *inout, int *len, MPI_Datatype *type)
{
	(void)in, (void)inout, (void)len, (void)type; /* what comes from higher ranks stays */
}

/* Of what does not commute the order of ranks counts. */
static void reduce_in_order(MPI_Comm comm, int call, uint64_t *shared)
{
	int n = (int)draw(shared, 100), src[100] = { 0 }, dst[100] = { 0 };
	MPI_Op op;

	for (int i = 0; i < n; i++)
		src[i] = element(rank, 2, (size_t)i);
	MPI_Op_create(last_of, 0, &op);
	reduce(call % 2, src, dst, n, MPI_INT, op, 0, comm);
	MPI_Op_free(&op);
	for (int i = 0; i < n && (call % 2 == 0 || rank == 0); i++)
		CHECK(dst[i] == element(nranks - 1, 2, (size_t)i), "ranks in order");
}

static void combine_others(MPI_Comm comm, uint64_t *shared)
{
	int which = (int)draw(shared, 4), call = (int)draw(shared, 4);

	if (which == 0)
		reduce_pairs(comm, call, shared);
	else if (which == 1)
		reduce_numbers(comm, call, shared);
	else if (which == 2)
		reduce_own(comm, call, shared);
	else
		reduce_in_order(comm, call, shared);
}

/* ---- Random programs ------------------------------------------------------------------------- */

static void one(MPI_Comm comm, uint64_t program, uint64_t *shared, uint64_t *own)
{
	int call = (int)draw(shared, 17);

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &nranks);
	if (call < 5)
		move_even(comm, call, shared, own);
	else if (call < 9)
		move_uneven(comm, call - 5, program, shared, own);
	else if (call < 13)
		combine(comm, call - 9, shared, own);
	else if (call < 16)
		combine_others(comm, shared);
	else
		MPI_Barrier(comm);
}

static void random_programs(long programs, uint64_t seed)
{
	enum { NCOMMS = 3 };
	MPI_Comm comms[NCOMMS];
	int world;
	uint64_t own;

	MPI_Comm_rank(MPI_COMM_WORLD, &world);
	own = seed * 31 + (uint64_t)world * 7919 + 1;
	comms[0] = MPI_COMM_WORLD;
	MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
	MPI_Comm_split(MPI_COMM_WORLD, world % 2, -world, &comms[2]);
	for (long k = 0; k < programs; k++) {
		uint64_t shared = seed * 1000003 + (uint64_t)k * 17;

		if (draw(&shared, 100) == 0) { /* one comes anew */
			MPI_Comm_free(&comms[1]);
			MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
		}
		one(comms[draw(&shared, NCOMMS)], (uint64_t)k, &shared, &own);
	}
	MPI_Comm_free(&comms[1]);
	MPI_Comm_free(&comms[2]);
}

/* ---- Progress -------------------------------------------------------------------------------- */

static void progress(int which)
{
	enum { BIG = 1 << 22 };
	int *x = calloc(BIG, sizeof(int)), one = 1, sum = 0, late = 0;
	MPI_Request request;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int k = 0; k < 30; k++)
		MPI_Barrier(MPI_COMM_WORLD);
	if (which == 1 && rank == 0) {
		MPI_Isend(x, BIG, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else if (which == 1) {
		if (rank == 1)
			MPI_Recv(x, BIG, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	} else if (which == 2) {
		MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
		if (rank != 0)
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0)
			MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else { /* what MPI still has to send, by an own operation that Kolo leaves to it */
		late = rank == 1 ? 200000 : 0;
		usleep((unsigned)late);
		MPI_Scan(x, x + BIG / 2, BIG / 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	free(x);
}

/* ---- Deaths, freeing ------------------------------------------------------------------------- */

/* What each rank says goes into PLACE.RANK: launchers lose it beside the news of a death. */
static void die(const char *place)
{
	int one = 1, sum, rc = MPI_SUCCESS;
	char path[4096];

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	snprintf(path, sizeof(path), "%s.%d", place, rank);
	CHECK(freopen(path, "w", stdout) && dup2(fileno(stdout), 2) == 2, path);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int k = 0; k < 100 && rc == MPI_SUCCESS; k++) {
		if (rank == 1 && k == 50)
			kill(getpid(), SIGKILL);
		rc = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	}
	printf("rank %d: %s\n", rank, rc == MPI_SUCCESS ? "nothing" : "told");
	fflush(stdout);
	sleep(1); /* the launcher may end the others when one ends */
	_exit(0);
}

/* Root of a broadcast is done before the others, and frees. */
static void free_behind(void)
{
	int *x = calloc(MOST, sizeof(int));

	for (int k = 0; k < 30; k++) {
		MPI_Comm comm;

		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		MPI_Comm_rank(comm, &rank);
		for (int i = 0; i < 5; i++) {
			if (rank)
				usleep(2000);
			x[0] = rank ? 0 : k;
			MPI_Bcast(x, k % 2 ? MOST : 1, MPI_INT, 0, comm);
			CHECK(x[0] == k, "a broadcast before the communicator goes");
		}
		MPI_Comm_free(&comm);
	}
	free(x);
}

/* The k-th of them: a copy, the same ranks the other way round, or every second rank. */
static MPI_Comm make_one(int k, int world)
{
	MPI_Comm comm;

	if (k % 3 == 0)
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	else if (k % 3 == 1)
		MPI_Comm_split(MPI_COMM_WORLD, 0, -world, &comm);
	else
		MPI_Comm_split(MPI_COMM_WORLD, world % 2, world, &comm);
	return comm;
}

static int world_rank_of(int k, int r, int world, int nworld)
{
	return k % 3 == 0 ? r : k % 3 == 1 ? nworld - 1 - r : 2 * r + world % 2;
}

static void use_one(MPI_Comm comm, int k, int world, int nworld)
{
	int *all;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &nranks);
	all = calloc((size_t)nranks, sizeof(*all));
	for (int i = 0; i < 12; i++) {
		int from = (k + i) % nranks, told = rank == from ? world + i : -1;

		MPI_Allgather(&world, 1, MPI_INT, all, 1, MPI_INT, comm);
		MPI_Bcast(&told, 1, MPI_INT, from, comm);
		for (int r = 0; r < nranks; r++)
			CHECK(all[r] == world_rank_of(k, r, world, nworld), "an order of ranks");
		CHECK(told == all[from] + i, "a broadcast on one of many");
	}
	free(all);
}

static void many(int world)
{
	enum { THERE = 3, ALL = 30 };
	MPI_Comm comms[THERE];
	int nworld;

	MPI_Comm_size(MPI_COMM_WORLD, &nworld);
	for (int k = 0; k < ALL + THERE; k++) {
		if (k >= THERE) {
			use_one(comms[k % THERE], k - THERE, world, nworld);
			MPI_Comm_free(&comms[k % THERE]);
		}
		if (k < ALL) {
			use_one(MPI_COMM_WORLD, 0, world, nworld);
			comms[k % THERE] = make_one(k, world);
			use_one(comms[k % THERE], k, world, nworld);
		}
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int world;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &world);
	if (strcmp(mode, "random") == 0)
		random_programs(atol(argv[2]), strtoull(argv[3], NULL, 10));
	else if (strcmp(mode, "progress") == 0)
		progress(atoi(argv[2]));
	else if (strcmp(mode, "die") == 0)
		die(argv[2]);
	else if (strcmp(mode, "many") == 0)
		many(world);
	else
		free_behind();
	if (world == 0)
		printf("good\n");
	MPI_Finalize();
	return 0;
}
