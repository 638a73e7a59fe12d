/* Reductions and the barrier (km_combine), and the rule: which types and operations Kolo takes. All
 * ranks name the same ones, so all decide alike. */
#include "tools/mpi/inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- The rule -------------------------------------------------------------------------------- */

enum kind { INTEGER, FORTRAN_INTEGER, BYTES, BOOL, FLOAT, COMPLEX, NKINDS };

/* Operations of each kind, a bit for each of enum kolo_op. */
enum {
	SUMS = 1 << KOLO_SUM,
	ORDERED = SUMS | 1 << KOLO_PROD | 1 << KOLO_MIN | 1 << KOLO_MAX,
	BITS = 1 << KOLO_BAND | 1 << KOLO_BOR | 1 << KOLO_BXOR,
	LOGICAL = 1 << KOLO_LAND | 1 << KOLO_LOR | 1 << KOLO_LXOR
};
static const int ops_of[NKINDS] = {
	[INTEGER] = ORDERED | BITS | LOGICAL,
	[FORTRAN_INTEGER] = ORDERED | BITS,
	[BYTES] = BITS,
	[BOOL] = LOGICAL,
	[FLOAT] = ORDERED,
	[COMPLEX] = SUMS,
};

struct known {
	MPI_Datatype mpi;
	enum kind kind;
	enum kolo_type type;
	size_t per; /* of Kolo's elements in one of MPI's */
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

/* A type of that kind, by its size. The table is made when it is first needed: in Open MPI handles
 * are not known before. */
static bool describe(MPI_Datatype mpi, enum kind kind, bool is_signed, struct known *out)
{
	int size;

	if (km_real.Type_size(mpi, &size) != MPI_SUCCESS)
		return false;
	*out = (struct known){ mpi, kind, KOLO_U8, 1 };
	switch (kind) {
	case INTEGER:
	case FORTRAN_INTEGER:
		out->type = integer((size_t)size, is_signed);
		return size == 1 || size == 2 || size == 4 || size == 8;
	case FLOAT: out->type = size == 4 ? KOLO_F32 : KOLO_F64; return size == 4 || size == 8;
	case COMPLEX:
		out->type = size == 8 ? KOLO_F32 : KOLO_F64;
		out->per = 2;
		return size == 8 || size == 16;
	default: return size == 1;
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

static bool find_op(MPI_Op mpi, enum kolo_op *out)
{
	const struct {
		MPI_Op mpi;
		enum kolo_op op;
	} all[] = {
		{ MPI_SUM, KOLO_SUM },   { MPI_MAX, KOLO_MAX },   { MPI_MIN, KOLO_MIN },
		{ MPI_PROD, KOLO_PROD }, { MPI_LOR, KOLO_LOR },   { MPI_LAND, KOLO_LAND },
		{ MPI_BOR, KOLO_BOR },   { MPI_BAND, KOLO_BAND }, { MPI_BXOR, KOLO_BXOR },
		{ MPI_LXOR, KOLO_LXOR },
	};

	for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
		if (all[k].mpi == mpi) {
			*out = all[k].op;
			return true;
		}
	return false;
}

/* ---- Reductions ------------------------------------------------------------------------------ */

/* What a reduction needs. */
struct sums {
	enum kolo_type type;
	enum kolo_op op;
	size_t size, per; /* bytes of an element of MPI's; Kolo's elements in it */
	const void *src;
	bool in_place;
};

/* In place MPI's input is all of dst and the result its beginning; Kolo's would be the own block.
 */
static int scatter_sums(const struct km_comm *c, const struct km_args *a, const struct sums *s,
			const size_t *counts, size_t own)
{
	bool blocks = a->call == KM_REDUCE_SCATTER_BLOCK;
	char *room = s->in_place && own ? malloc(own * s->size) : NULL;
	void *dst = s->in_place ? room : a->dst;
	int rc;

	if (s->in_place && own && !room)
		return KOLO_ENOMEM;
	rc = blocks ? kolo_reduce_scatter(c->kolo, s->src, dst, own * s->per, s->type, s->op, NULL)
		    : kolo_reduce_scatter_v(c->kolo, s->src, dst, counts, s->type, s->op, NULL);
	if (rc == 0 && room)
		memcpy(a->dst, room, own * s->size);
	free(room);
	return rc;
}

/* Kolo counts its own elements. */
static int scatter_uneven(const struct km_comm *c, const struct km_args *a, const struct sums *s,
			  size_t *all)
{
	size_t *counts = malloc((size_t)c->size * sizeof(*counts));
	int rc;

	if (!counts)
		return KOLO_ENOMEM;
	for (int r = 0; r < c->size; r++) {
		counts[r] = km_number(a->dst_counts, r) * s->per;
		*all += km_number(a->dst_counts, r);
	}
	rc = scatter_sums(c, a, s, counts, km_number(a->dst_counts, c->rank));
	free(counts);
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
	struct known type;
	struct sums s;
	size_t n = (size_t)a->ndst;
	int code;

	if (a->call == KM_BARRIER) {
		d->could = true;
		if (c->kolo)
			d->rc = km_result(c, a->call, kolo_barrier(c->kolo, NULL));
		return c->kolo;
	}
	if (!is_valid(c, a) || !find_type(a->tdst, &type))
		return false;
	s.type = type.type;
	s.per = type.per;
	s.size = kolo_type_size(type.type) * type.per;
	d->bytes = n * s.size;
	d->could = find_op(a->op, &s.op) && ops_of[type.kind] >> s.op & 1;
	if (!c->kolo || !d->could)
		return false;
	s.in_place = a->src == MPI_IN_PLACE;
	s.src = s.in_place ? a->dst : a->src;
	switch (a->call) {
	case KM_ALLREDUCE:
		code = kolo_all_reduce(c->kolo, s.src, a->dst, n * s.per, s.type, s.op, NULL);
		break;
	case KM_REDUCE:
		code = kolo_reduce(c->kolo, s.src, c->rank == a->root ? a->dst : NULL, n * s.per,
				   s.type, s.op, a->root, NULL);
		break;
	case KM_REDUCE_SCATTER_BLOCK:
		d->bytes *= (size_t)c->size;
		code = scatter_sums(c, a, &s, NULL, n);
		break;
	default:
		n = 0;
		code = scatter_uneven(c, a, &s, &n);
		d->bytes = n * s.size;
	}
	d->rc = km_result(c, a->call, code);
	return true;
}
