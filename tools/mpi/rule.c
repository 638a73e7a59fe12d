/* The rule: which types and operations Kolo takes (km_rule). All ranks name the same ones, so all
 * decide alike. */
#include "tools/mpi/inside.h"

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

/* A type of that kind, by its size. */
static bool describe(MPI_Datatype mpi, enum kind kind, bool is_signed, struct known *out)
{
	MPI_Aint lb, extent;
	int size;

	if (km_real.Type_size(mpi, &size) != MPI_SUCCESS ||
	    km_real.Type_get_extent(mpi, &lb, &extent) != MPI_SUCCESS || extent < 1)
		return false;
	*out = (struct known){ kind, KOLO_U8 };
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

/* The table is made when it is needed: in Open MPI handles are not known before. */
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

static struct km_rule find_rule(MPI_Datatype type, MPI_Op op)
{
	struct km_rule rule = { .way = KM_LEFT };
	struct known known;

	if (!look_up_op(op, &rule.op))
		return (struct km_rule){ .way = KM_OF_PROGRAM };
	if (rule.op == KOLO_OP_LAST || type == MPI_DATATYPE_NULL || !look_up(type, &known) ||
	    !(ops_of[known.kind] >> rule.op & 1))
		return rule;
	rule.way = known.kind >= LONG_FLOAT ? KM_WITH_GAPS : KM_TAKEN;
	rule.type = known.type;
	rule.size = (unsigned)kolo_type_size(known.type);
	return rule;
}

struct found {
	MPI_Datatype type;
	MPI_Op op;
	struct km_rule rule;
};

/* Keeps what it found for the thread's last types and operations: MPI's can't be freed, so it stays
 * true. An operation of the program is looked up each time. */
struct km_rule km_rule(MPI_Datatype type, MPI_Op op)
{
	enum { BITS_OF_PLACE = 3 };
	static _Thread_local struct found found[1 << BITS_OF_PLACE];
	uint64_t mixed = ((uintptr_t)type + 3 * (uintptr_t)op) * 0x9e3779b97f4a7c15;
	struct found *at = &found[mixed >> (64 - BITS_OF_PLACE)];

	if (at->rule.way == KM_OF_PROGRAM || at->type != type || at->op != op)
		*at = (struct found){ type, op, find_rule(type, op) };
	return at->rule;
}
