/* Reductions and the barrier (km_combine), and the rule: which types and operations Kolo takes. All
 * ranks name the same ones, so all decide alike. */
#include "tools/mpi/inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- The rule -------------------------------------------------------------------------------- */

/* Those from LONG_FLOAT on Kolo does not know: MPI combines their elements. */
enum kind {
	INTEGER,
	FORTRAN_INTEGER,
	BYTES,
	BOOL,
	FLOAT,
	COMPLEX,
	PAIR,
	LONG_FLOAT,
	LONG_COMPLEX,
	LOGICALS,
	OTHER_PAIR,
	NKINDS
};

/* Operations of each kind, a bit for each of enum kolo_op. */
enum {
	SUMS = 1 << KOLO_SUM | 1 << KOLO_PROD,
	ORDERED = SUMS | 1 << KOLO_MIN | 1 << KOLO_MAX,
	BITS = 1 << KOLO_BAND | 1 << KOLO_BOR | 1 << KOLO_BXOR,
	LOGICAL = 1 << KOLO_LAND | 1 << KOLO_LOR | 1 << KOLO_LXOR,
	PLACES = 1 << KOLO_MINLOC | 1 << KOLO_MAXLOC
};
static const int ops_of[NKINDS] = {
	[INTEGER] = ORDERED | BITS | LOGICAL,
	[FORTRAN_INTEGER] = ORDERED | BITS,
	[BYTES] = BITS,
	[BOOL] = LOGICAL,
	[FLOAT] = ORDERED,
	[COMPLEX] = SUMS,
	[PAIR] = PLACES,
	[LONG_FLOAT] = ORDERED,
	[LONG_COMPLEX] = SUMS,
	[LOGICALS] = LOGICAL,
	[OTHER_PAIR] = PLACES,
};

struct known {
	MPI_Datatype mpi;
	enum kind kind;
	enum kolo_type type;
};

static enum kolo_type integer(size_t size, bool is_signed)
{
	switch (size) {
	case 1: return is_signed ? KOLO_I8 : KOLO_U8;
	case 2: return is_signed ? KOLO_I16 : KOLO_U16;
	case 4: return is_signed ? KOLO_I32 : KOLO_U32;
	default: return is_signed ? KOLO_I64 : KOLO_U64;
	}
}

/* By the sizes of the value and of all of it. */
static enum kolo_type pair(bool is_float, int size, MPI_Aint extent)
{
	if (size == 8 && extent == 8)
		return is_float ? KOLO_F32_I32 : KOLO_I32_I32;
	if (size == 12 && extent == 16)
		return is_float ? KOLO_F64_I32 : KOLO_I64_I32;
	return kolo_type_bytes(0);
}

/* A type of that kind, by its size. The table is made when it is first needed: in Open MPI handles
 * are not known before. */
static bool describe(MPI_Datatype mpi, enum kind kind, bool is_signed, struct known *out)
{
	MPI_Aint lb, extent;
	int size;

	if (km_real.Type_size(mpi, &size) != MPI_SUCCESS ||
	    km_real.Type_get_extent(mpi, &lb, &extent) != MPI_SUCCESS || extent < 1)
		return false;
	*out = (struct known){ mpi, kind, KOLO_U8 };
	switch (kind) {
	case INTEGER:
	case FORTRAN_INTEGER:
		out->type = integer((size_t)size, is_signed);
		return size == 1 || size == 2 || size == 4 || size == 8;
	case FLOAT: out->type = size == 4 ? KOLO_F32 : KOLO_F64; return size == 4 || size == 8;
	case COMPLEX: out->type = size == 8 ? KOLO_C64 : KOLO_C128; return size == 8 || size == 16;
	case PAIR: out->type = pair(is_signed, size, extent); return kolo_type_size(out->type);
	case BYTES:
	case BOOL: return size == 1;
	default: out->type = kolo_type_bytes((size_t)extent); return kolo_type_size(out->type);
	}
}

static bool look_up(MPI_Datatype mpi, struct known *out)
{
	const struct {
		MPI_Datatype mpi;
		enum kind kind;
		bool is_signed;
	} all[] = {
		{ MPI_DOUBLE, FLOAT, true },
		{ MPI_INT, INTEGER, true },
		{ MPI_FLOAT, FLOAT, true },
		{ MPI_LONG, INTEGER, true },
		{ MPI_DOUBLE_PRECISION, FLOAT, true },
		{ MPI_INTEGER, FORTRAN_INTEGER, true },
		{ MPI_REAL, FLOAT, true },
		{ MPI_UNSIGNED, INTEGER, false },
		{ MPI_UNSIGNED_LONG, INTEGER, false },
		{ MPI_LONG_LONG_INT, INTEGER, true },
		{ MPI_UNSIGNED_LONG_LONG, INTEGER, false },
		{ MPI_SHORT, INTEGER, true },
		{ MPI_UNSIGNED_SHORT, INTEGER, false },
		{ MPI_SIGNED_CHAR, INTEGER, true },
		{ MPI_UNSIGNED_CHAR, INTEGER, false },
		{ MPI_INT8_T, INTEGER, true },
		{ MPI_INT16_T, INTEGER, true },
		{ MPI_INT32_T, INTEGER, true },
		{ MPI_INT64_T, INTEGER, true },
		{ MPI_UINT8_T, INTEGER, false },
		{ MPI_UINT16_T, INTEGER, false },
		{ MPI_UINT32_T, INTEGER, false },
		{ MPI_UINT64_T, INTEGER, false },
		{ MPI_AINT, FORTRAN_INTEGER, true },
		{ MPI_OFFSET, FORTRAN_INTEGER, true },
		{ MPI_COUNT, FORTRAN_INTEGER, true },
		{ MPI_BYTE, BYTES, false },
		{ MPI_C_BOOL, BOOL, false },
		{ MPI_C_COMPLEX, COMPLEX, true },
		{ MPI_C_DOUBLE_COMPLEX, COMPLEX, true },
		{ MPI_CXX_FLOAT_COMPLEX, COMPLEX, true },
		{ MPI_CXX_DOUBLE_COMPLEX, COMPLEX, true },
		{ MPI_COMPLEX, COMPLEX, true },
		{ MPI_DOUBLE_COMPLEX, COMPLEX, true },
		{ MPI_INTEGER1, FORTRAN_INTEGER, true },
		{ MPI_INTEGER2, FORTRAN_INTEGER, true },
		{ MPI_INTEGER4, FORTRAN_INTEGER, true },
		{ MPI_INTEGER8, FORTRAN_INTEGER, true },
		{ MPI_REAL4, FLOAT, true },
		{ MPI_REAL8, FLOAT, true },
		{ MPI_COMPLEX8, COMPLEX, true },
		{ MPI_COMPLEX16, COMPLEX, true },
		{ MPI_2INT, PAIR, false },
		{ MPI_LONG_INT, PAIR, false },
		{ MPI_2INTEGER, PAIR, false },
		{ MPI_FLOAT_INT, PAIR, true },
		{ MPI_DOUBLE_INT, PAIR, true },
		{ MPI_LONG_DOUBLE, LONG_FLOAT, true },
		{ MPI_C_LONG_DOUBLE_COMPLEX, LONG_COMPLEX, true },
		{ MPI_LOGICAL, LOGICALS, true },
		{ MPI_SHORT_INT, OTHER_PAIR, true },
		{ MPI_LONG_DOUBLE_INT, OTHER_PAIR, true },
		{ MPI_2REAL, OTHER_PAIR, true },
		{ MPI_2DOUBLE_PRECISION, OTHER_PAIR, true },
	};

	for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
		if (all[k].mpi == mpi)
			return describe(mpi, all[k].kind, all[k].is_signed, out);
	return false;
}

/* Most calls name the type of the one before. */
static bool find_type(MPI_Datatype mpi, struct known *out)
{
	static _Thread_local struct known last;
	static _Thread_local bool valid;

	if (mpi == MPI_DATATYPE_NULL)
		return false;
	if (!valid || last.mpi != mpi)
		valid = look_up(mpi, &last);
	*out = last;
	return valid;
}

/* false: it is none of MPI's. *out is KOLO_OP_LAST if it is one for other calls, or none. */
static bool look_up_op(MPI_Op mpi, enum kolo_op *out)
{
	const struct {
		MPI_Op mpi;
		enum kolo_op op;
	} all[] = {
		{ MPI_SUM, KOLO_SUM },         { MPI_MAX, KOLO_MAX },
		{ MPI_MIN, KOLO_MIN },         { MPI_PROD, KOLO_PROD },
		{ MPI_LOR, KOLO_LOR },         { MPI_LAND, KOLO_LAND },
		{ MPI_BOR, KOLO_BOR },         { MPI_BAND, KOLO_BAND },
		{ MPI_BXOR, KOLO_BXOR },       { MPI_LXOR, KOLO_LXOR },
		{ MPI_MINLOC, KOLO_MINLOC },   { MPI_MAXLOC, KOLO_MAXLOC },
		{ MPI_REPLACE, KOLO_OP_LAST }, { MPI_NO_OP, KOLO_OP_LAST },
		{ MPI_OP_NULL, KOLO_OP_LAST },
	};

	for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
		if (all[k].mpi == mpi) {
			*out = all[k].op;
			return true;
		}
	return false;
}

/* As find_type. What MPI has can't be freed, so it stays what it is; an operation of the program is
 * looked up each time. */
static bool find_op(MPI_Op mpi, enum kolo_op *out)
{
	static _Thread_local MPI_Op last;
	static _Thread_local enum kolo_op last_op;
	static _Thread_local bool valid;

	if (!valid || last != mpi) {
		valid = look_up_op(mpi, &last_op);
		last = mpi;
	}
	*out = last_op;
	return valid;
}

/* ---- Reductions ------------------------------------------------------------------------------ */

/* What a reduction needs. */
struct sums {
	enum kolo_type type;
	enum kolo_op op;
	bool own;          /* MPI combines the elements; `op` is not set yet */
	struct km_type is; /* an element of MPI's type, if so */
	size_t size;       /* bytes of an element, as Kolo moves it */
	const void *src;
	void *dst;
	bool in_place;
};

/* An operation of the program, on any type; all ranks must have made it alike. */
static bool find_own(const struct km_comm *c, const struct km_args *a, struct sums *s)
{
	int commutes;

	if (km_real.Op_commutative(a->op, &commutes) != MPI_SUCCESS || !commutes ||
	    !(c->kolo ? km_type_of(a->tdst, &s->is) : km_measure(a->tdst, &s->is)))
		return false;
	s->own = true;
	s->size = s->is.size;
	s->type = kolo_type_bytes(s->size);
	return kolo_type_size(s->type);
}

/* The rule. */
static bool find(const struct km_comm *c, const struct km_args *a, struct sums *s)
{
	struct known type;

	*s = (struct sums){ .dst = a->dst };
	if (!find_op(a->op, &s->op))
		return find_own(c, a, s);
	if (s->op == KOLO_OP_LAST || !find_type(a->tdst, &type) ||
	    !(ops_of[type.kind] >> s->op & 1))
		return false;
	s->type = type.type;
	s->size = kolo_type_size(type.type);
	if (type.kind >= LONG_FLOAT) { /* what is between elements goes with them */
		s->own = true;
		s->is = (struct km_type){ .size = s->size,
					  .extent = (MPI_Aint)s->size,
					  .dense = true };
	}
	return true;
}

/* In place MPI's input is all of dst and the result its beginning; Kolo's would be the own block.
 */
static int scatter_sums(const struct km_comm *c, const struct km_args *a, const struct sums *s,
			const size_t *counts, size_t own)
{
	bool blocks = a->call == KM_REDUCE_SCATTER_BLOCK;
	char *room = s->in_place && own ? malloc(own * s->size) : NULL;
	void *dst = s->in_place ? room : s->dst;
	int rc;

	if (s->in_place && own && !room)
		return KOLO_ENOMEM;
	rc = blocks ? kolo_reduce_scatter(c->kolo, s->src, dst, own, s->type, s->op, NULL)
		    : kolo_reduce_scatter_v(c->kolo, s->src, dst, counts, s->type, s->op, NULL);
	if (rc == 0 && room)
		memcpy(s->dst, room, own * s->size);
	free(room);
	return rc;
}

static int scatter_uneven(const struct km_comm *c, const struct km_args *a, const struct sums *s)
{
	size_t *counts = malloc((size_t)c->size * sizeof(*counts));
	int rc;

	if (!counts)
		return KOLO_ENOMEM;
	for (int r = 0; r < c->size; r++)
		counts[r] = km_number(a->dst_counts, r);
	rc = scatter_sums(c, a, s, counts, counts[c->rank]);
	free(counts);
	return rc;
}

static int reduce(const struct km_comm *c, const struct km_args *a, const struct sums *s)
{
	size_t n = (size_t)a->ndst;

	switch (a->call) {
	case KM_ALLREDUCE: return kolo_all_reduce(c->kolo, s->src, s->dst, n, s->type, s->op, NULL);
	case KM_REDUCE:
		return kolo_reduce(c->kolo, s->src, c->rank == a->root ? s->dst : NULL, n, s->type,
				   s->op, a->root, NULL);
	case KM_REDUCE_SCATTER_BLOCK: return scatter_sums(c, a, s, NULL, n);
	default: return scatter_uneven(c, a, s);
	}
}

/* Elements that a reduction reads and writes on this rank. */
struct elements {
	size_t src, dst;
};

static struct elements elements_of(const struct km_comm *c, const struct km_args *a)
{
	struct elements n = { (size_t)a->ndst, (size_t)a->ndst };

	if (a->call == KM_REDUCE && c->rank != a->root)
		n.dst = 0;
	if (a->call == KM_REDUCE_SCATTER_BLOCK)
		n.src *= (size_t)c->size;
	if (a->call == KM_REDUCE_SCATTER) {
		n.src = 0;
		n.dst = km_number(a->dst_counts, c->rank);
		for (int r = 0; r < c->size; r++)
			n.src += km_number(a->dst_counts, r);
	}
	return n;
}

/* Elements that do not lie side by side are packed, and unpacked after. */
static int reduce_packed(struct km_comm *c, const struct km_args *a, struct sums *s,
			 struct elements n)
{
	char *room = malloc((n.src + n.dst) * s->size + 1);
	int rc = room ? 0 : KOLO_ENOMEM;

	if (rc == 0 && km_pack(s->src, n.src, a->tdst, s->is, room, c) != MPI_SUCCESS)
		rc = KOLO_EINVAL;
	s->src = room;
	s->dst = room + n.src * s->size;
	s->in_place = false;
	if (rc == 0)
		rc = reduce(c, a, s);
	if (rc == 0 && km_unpack(s->dst, n.dst, a->tdst, s->is, a->dst, c) != MPI_SUCCESS)
		rc = KOLO_EINVAL;
	free(room);
	return rc;
}

/* KOLO_ENOTSUP: MPI is to do it, on all ranks. */
static int reduce_own(struct km_comm *c, const struct km_args *a, struct sums *s, struct elements n)
{
	int rc = km_own_begin(c, a, s->is, &s->op);

	if (rc == KOLO_ENOTSUP)
		return rc;
	if (rc < 0) /* the others must not wait */
		kolo_comm_abort(c->kolo);
	else
		rc = s->is.dense ? reduce(c, a, s) : reduce_packed(c, a, s, n);
	return rc;
}

static bool is_valid(const struct km_comm *c, const struct km_args *a)
{
	if (a->ndst < 0 || (a->call == KM_REDUCE && (a->root < 0 || a->root >= c->size)))
		return false;
	for (int r = 0; a->dst_counts.of && r < c->size; r++)
		if ((int64_t)km_number(a->dst_counts, r) < 0)
			return false;
	return true;
}

bool km_combine(struct km_comm *c, const struct km_args *a, struct km_done *d)
{
	struct elements n;
	struct sums s;
	int code;

	if (a->call == KM_BARRIER) {
		d->could = true;
		if (c->kolo)
			d->rc = km_result(c, a->call, kolo_barrier(c->kolo, NULL));
		return c->kolo;
	}
	if (!is_valid(c, a))
		return false;
	d->could = find(c, a, &s);
	n = elements_of(c, a);
	if (!d->could && km_timed && km_measure(a->tdst, &s.is))
		s.size = s.is.size;
	d->bytes = n.src * s.size;
	if (!c->kolo || !d->could)
		return false;
	s.in_place = a->src == MPI_IN_PLACE;
	s.src = s.in_place ? a->dst : a->src;
	code = s.own ? reduce_own(c, a, &s, n) : reduce(c, a, &s);
	if (code == KOLO_ENOTSUP)
		return false;
	d->rc = km_result(c, a->call, code);
	return true;
}
