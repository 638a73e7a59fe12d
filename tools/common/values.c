/* Computes elements and reductions one at a time, straight from the definitions of the formats. */
#include "tools/common/values.h"

#include <math.h>
#include <string.h>

/* A small floating format: sign, exponent, mantissa. */
struct format {
	int bits, mant, bias;
	bool has_inf; /* else the all-ones code is the only NaN, and what is too large saturates */
};

static const struct format formats[VALUES_NTYPES] = {
	[KOLO_F16] = { 16, 10, 15, true },
	[KOLO_BF16] = { 16, 7, 127, true },
	[KOLO_F8E4M3] = { 8, 3, 7, false },
	[KOLO_F8E5M2] = { 8, 2, 15, true },
};

bool values_is_integer(enum kolo_type type)
{
	return type <= KOLO_U64 || type == KOLO_I16 || type == KOLO_U16;
}

static bool is_logical(enum kolo_op op)
{
	return op == KOLO_LAND || op == KOLO_LOR || op == KOLO_LXOR;
}

static bool is_complex(enum kolo_type type)
{
	return type == KOLO_C64 || type == KOLO_C128;
}

static bool is_pair(enum kolo_type type)
{
	return type == KOLO_I32_I32 || type == KOLO_I64_I32 || type == KOLO_F32_I32 ||
	       type == KOLO_F64_I32;
}

/* What the first part of a complex number or pair is; another type is that itself. */
static enum kolo_type part_of(enum kolo_type type)
{
	switch (type) {
	case KOLO_C64:
	case KOLO_F32_I32: return KOLO_F32;
	case KOLO_C128:
	case KOLO_F64_I32: return KOLO_F64;
	case KOLO_I32_I32: return KOLO_I32;
	case KOLO_I64_I32: return KOLO_I64;
	default: return type;
	}
}

bool values_has_op(enum kolo_type type, enum kolo_op op)
{
	if (is_pair(type) || op == KOLO_MINLOC || op == KOLO_MAXLOC)
		return is_pair(type) && (op == KOLO_MINLOC || op == KOLO_MAXLOC);
	if (is_complex(type))
		return op == KOLO_SUM || op == KOLO_PROD || op == KOLO_AVG;
	return values_is_integer(type) || op <= KOLO_AVG;
}

bool values_has_premul(enum kolo_type type)
{
	return !is_complex(type) && !is_pair(type);
}

void values_make(enum kolo_type type, uint64_t bits, double x, void *out)
{
	enum kolo_type part = part_of(type);
	size_t size = kolo_type_size(part);
	char *rest = (char *)out + size;

	uint64_t index = (bits >> 20 & 7) | bits << 32, few = -(bits & 1);

	if (values_is_integer(part)) /* of pairs few values and indices, so that many are equal */
		memcpy(out, is_pair(type) ? &few : &bits, size);
	else
		values_encode(part, x, out);
	if (is_complex(type))
		values_encode(part, 1.5 - (double)(bits >> 50 & 1023) / 512, rest);
	else if (is_pair(type))
		memcpy(rest, &index, kolo_type_size(type) - size); /* and what is unused */
}

bool values_same(enum kolo_type type, const void *a, const void *b)
{
	enum kolo_type part = part_of(type);
	size_t size = kolo_type_size(part), whole = kolo_type_size(type);
	const char *x = a, *y = b;

	if (memcmp(a, b, whole) == 0)
		return true;
	if (values_is_integer(part))
		return false;
	if (is_pair(type) && memcmp(x + size, y + size, whole - size) != 0)
		return false;
	for (size_t at = 0; at < (is_pair(type) ? size : whole); at += size)
		if (memcmp(x + at, y + at, size) != 0 &&
		    !(isnan(values_decode(part, x + at)) && isnan(values_decode(part, y + at))))
			return false;
	return true;
}

/* ---- Small formats --------------------------------------------------------------------------- */

/* 2^e, a normal double. What ldexp() does takes ten times as long. */
static double power_of_2(int e)
{
	uint64_t bits = (uint64_t)(e + 1023) << 52;
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* The value of a code without its sign, as if there were neither infinity nor NaN. */
static double magnitude(const struct format *f, unsigned code)
{
	unsigned exponent = code >> f->mant, mant = code & ((1u << f->mant) - 1);

	if (exponent == 0)
		return mant * power_of_2(1 - f->bias - f->mant);
	return (mant + (double)(1u << f->mant)) * power_of_2((int)exponent - f->bias - f->mant);
}

/* The code of infinity. In a format without infinity, that of NaN. */
static unsigned first_special(const struct format *f)
{
	unsigned all = (1u << (f->bits - 1)) - 1;

	return f->has_inf ? all & ~((1u << f->mant) - 1) : all;
}

static double decode_small(const struct format *f, unsigned code)
{
	unsigned sign = code >> (f->bits - 1), rest = code & ((1u << (f->bits - 1)) - 1);
	double x = magnitude(f, rest);

	if (rest >= first_special(f))
		x = rest == first_special(f) && f->has_inf ? INFINITY : NAN;
	return sign ? -x : x;
}

/* The largest code below the special ones whose value is not above x, which is no NaN. What is
 * smaller than the normal numbers has the exponent of the smallest. */
static unsigned code_below(const struct format *f, double x)
{
	int e;

	if (x >= magnitude(f, first_special(f)))
		return first_special(f) - 1;
	frexp(x, &e); /* x is 2^e / 2 or more */
	e = x < power_of_2(1 - f->bias) ? 1 - f->bias : e - 1;
	return ((unsigned)(e + f->bias - 1) << f->mant) + (unsigned)(x / power_of_2(e - f->mant));
}

/* The nearer of that code and the next. */
static unsigned encode_small(const struct format *f, double x)
{
	unsigned sign = signbit(x) ? 1u << (f->bits - 1) : 0, special = first_special(f), low;
	double below, above;

	x = fabs(x);
	if (isnan(x))
		return sign | (f->has_inf ? special | 1u << (f->mant - 1) : special);
	low = code_below(f, x);
	/* Infinity rounds like the number that would be there. */
	below = x - magnitude(f, low);
	above = magnitude(f, low + 1) - x;
	if (above < below || (above == below && low % 2))
		low++;
	if (low >= special && !f->has_inf)
		low = special - 1;
	return sign | low;
}

double values_decode(enum kolo_type type, const void *p)
{
	uint16_t two;
	uint8_t one;
	float single;
	double x;

	switch (type) {
	case KOLO_F64: memcpy(&x, p, sizeof(x)); return x;
	case KOLO_F32: memcpy(&single, p, sizeof(single)); return (double)single;
	case KOLO_F16:
	case KOLO_BF16: memcpy(&two, p, sizeof(two)); return decode_small(&formats[type], two);
	default: memcpy(&one, p, sizeof(one)); return decode_small(&formats[type], one);
	}
}

void values_encode(enum kolo_type type, double x, void *out)
{
	uint16_t two;
	uint8_t one;
	float single = (float)x;

	switch (type) {
	case KOLO_F64: memcpy(out, &x, sizeof(x)); break;
	case KOLO_F32: memcpy(out, &single, sizeof(single)); break;
	case KOLO_F16:
	case KOLO_BF16:
		two = (uint16_t)encode_small(&formats[type], x);
		memcpy(out, &two, sizeof(two));
		break;
	default:
		one = (uint8_t)encode_small(&formats[type], x);
		memcpy(out, &one, sizeof(one));
		break;
	}
}

/* ---- Integers -------------------------------------------------------------------------------- */

static bool is_signed(enum kolo_type type)
{
	return type == KOLO_I8 || type == KOLO_I16 || type == KOLO_I32 || type == KOLO_I64;
}

/* The element, sign-extended. */
static uint64_t load_int(enum kolo_type type, const void *p)
{
	unsigned unused = 64 - 8 * (unsigned)kolo_type_size(type);
	uint64_t x = 0;

	memcpy(&x, p, kolo_type_size(type));
	return is_signed(type) ? (uint64_t)((int64_t)(x << unused) >> unused) : x;
}

static uint64_t combine_int(enum kolo_type type, enum kolo_op op, uint64_t a, uint64_t b)
{
	bool a_less = is_signed(type) ? (int64_t)a < (int64_t)b : a < b;

	switch (op) {
	case KOLO_PROD: return a * b;
	case KOLO_MIN: return a_less ? a : b;
	case KOLO_MAX: return a_less ? b : a;
	case KOLO_BAND: return a & b;
	case KOLO_BOR: return a | b;
	case KOLO_BXOR: return a ^ b;
	case KOLO_LAND: return a && b;
	case KOLO_LOR: return a || b;
	case KOLO_LXOR: return !a != !b;
	default: return a + b;
	}
}

/* ---- Reductions ------------------------------------------------------------------------------ */

/* x rounded to what the type's loops compute in. */
static double computed(enum kolo_type type, double x)
{
	return part_of(type) == KOLO_F64 ? x : (double)(float)x;
}

struct values_scale values_avg_scale(enum kolo_type type, int nranks)
{
	return (struct values_scale){ .f = computed(type, 1.0 / nranks), .u = 1 };
}

static bool scales(enum kolo_type type, enum kolo_op op, bool premul)
{
	return premul || (op == KOLO_AVG && !values_is_integer(type));
}

void values_first(enum kolo_type type, enum kolo_op op, bool premul, struct values_scale s,
		  const void *src, void *out)
{
	enum kolo_type part = part_of(type);
	uint64_t x;

	memmove(out, src, kolo_type_size(type));
	if (!premul && is_logical(op)) {
		x = load_int(type, src) != 0;
		memcpy(out, &x, kolo_type_size(type));
	}
	if (!scales(type, op, premul))
		return;
	if (values_is_integer(type)) {
		x = load_int(type, src) * s.u;
		memcpy(out, &x, kolo_type_size(type));
		return;
	}
	for (size_t at = 0; at < kolo_type_size(type); at += kolo_type_size(part))
		values_encode(part,
			      computed(type, values_decode(part, (const char *)src + at) * s.f),
			      (char *)out + at);
}

/* -0 is less than +0, and NaN wins. */
static double pick(enum kolo_op op, double a, double b)
{
	bool a_less = a < b || (a == b && signbit(a) && !signbit(b));

	if (isnan(a) || isnan(b))
		return NAN;
	return a_less == (op == KOLO_MIN) ? a : b;
}

static void multiply_complex(enum kolo_type part, void *acc, const void *src)
{
	size_t size = kolo_type_size(part);
	double a = values_decode(part, acc), b = values_decode(part, (char *)acc + size),
	       c = values_decode(part, src), d = values_decode(part, (const char *)src + size);

	values_encode(part, computed(part, computed(part, a * c) - computed(part, b * d)), acc);
	values_encode(part, computed(part, computed(part, a * d) + computed(part, b * c)),
		      (char *)acc + size);
}

/* -1, 0 or 1: how value a stands to value b, by the op. */
static int compare_values(enum kolo_type part, enum kolo_op op, const void *a, const void *b)
{
	double x, y;

	if (values_is_integer(part)) {
		int64_t i = (int64_t)load_int(part, a), j = (int64_t)load_int(part, b);

		return i == j ? 0 : (i < j) == (op == KOLO_MINLOC) ? -1 : 1;
	}
	x = values_decode(part, a);
	y = values_decode(part, b);
	if (isnan(x) || isnan(y))
		return isnan(x) && isnan(y) ? 0 : isnan(x) ? -1 : 1;
	return x == y ? 0 : (x < y) == (op == KOLO_MINLOC) ? -1 : 1;
}

static void combine_pairs(enum kolo_type type, enum kolo_op op, void *acc, const void *src)
{
	enum kolo_type part = part_of(type);
	size_t size = kolo_type_size(part);
	int order = compare_values(part, op, acc, src);

	if (order == 0)
		order = (int64_t)load_int(KOLO_I32, (char *)acc + size) <=
					(int64_t)load_int(KOLO_I32, (const char *)src + size)
				? -1
				: 1;
	if (order > 0)
		memcpy(acc, src, kolo_type_size(type));
}

void values_combine(enum kolo_type type, enum kolo_op op, bool premul, struct values_scale s,
		    void *acc, const void *src)
{
	enum kolo_type part = part_of(type);
	uint64_t x;
	double a, b;

	if (is_pair(type)) {
		combine_pairs(type, op, acc, src);
		return;
	}
	if (is_complex(type) && op == KOLO_PROD) {
		multiply_complex(part, acc, src);
		return;
	}
	if (is_complex(type)) {
		values_combine(part, op, premul, s, acc, src);
		values_combine(part, op, premul, s, (char *)acc + kolo_type_size(part),
			       (const char *)src + kolo_type_size(part));
		return;
	}
	if (values_is_integer(type)) {
		x = combine_int(type, premul ? KOLO_SUM : op, load_int(type, acc),
				premul ? load_int(type, src) * s.u : load_int(type, src));
		memcpy(acc, &x, kolo_type_size(type));
		return;
	}
	a = values_decode(type, acc);
	b = values_decode(type, src);
	if (scales(type, op, premul))
		b = computed(type, b * s.f);
	if (!premul && (op == KOLO_MIN || op == KOLO_MAX))
		a = pick(op, a, b);
	else
		a = computed(type, !premul && op == KOLO_PROD ? a * b : a + b);
	values_encode(type, a, acc);
}

void values_tree(enum kolo_type type, enum kolo_op op, bool premul, int first, int n,
		 values_of_rank *value, const void *arg, void *out)
{
	struct values_scale s = { 0 };
	char own[VALUES_SIZE], rest[VALUES_SIZE];
	int half = 1;

	if (n == 1) {
		s = value(arg, first, own);
		values_first(type, op, premul, s, own, out);
		return;
	}
	while (half * 2 < n)
		half *= 2;
	values_tree(type, op, premul, first, half, value, arg, out);
	values_tree(type, op, premul, first + half, n - half, value, arg, rest);
	values_combine(type, op == KOLO_AVG ? KOLO_SUM : op, false, s, out, rest);
}

/* Of one group, from the rank after `number` round to it. */
static void sum_group(const struct kolo_comm *comm, enum kolo_type type, enum kolo_op op,
		      bool premul, int group, int number, values_of_rank *value, const void *arg,
		      void *out)
{
	int size = kolo_comm_nranks(comm) / kolo_comm_groups(comm);
	char own[VALUES_SIZE];

	for (int k = 1; k <= size; k++) {
		int rank = kolo_comm_group_rank(comm, group, (number + k) % size);
		struct values_scale s = value(arg, rank, own);

		if (k == 1)
			values_first(type, op, premul, s, own, out);
		else
			values_combine(type, op, premul, s, out, own);
	}
}

struct values_place values_grid_place(const struct kolo_comm *comm, int rank)
{
	int size = kolo_comm_nranks(comm) / kolo_comm_groups(comm), k = 0;

	while (kolo_comm_group_rank(comm, k / size, k % size) != rank)
		k++;
	return (struct values_place){ k / size, k % size };
}

int values_grid_owner(const struct kolo_comm *comm, int owner, int root)
{
	return kolo_comm_group_rank(comm, values_grid_place(comm, root).group,
				    values_grid_place(comm, owner).number);
}

void values_grid(const struct kolo_comm *comm, enum kolo_type type, enum kolo_op op, bool premul,
		 int owner, values_of_rank *value, const void *arg, void *out)
{
	struct values_place place = values_grid_place(comm, owner);
	int groups = kolo_comm_groups(comm);
	char sum[VALUES_SIZE];

	for (int k = 1; k <= groups; k++) {
		sum_group(comm, type, op, premul, (place.group + k) % groups, place.number, value,
			  arg, k == 1 ? out : sum);
		if (k > 1)
			values_combine(type, op == KOLO_AVG ? KOLO_SUM : op, false,
				       (struct values_scale){ 0 }, out, sum);
	}
}

void values_finish(enum kolo_type type, enum kolo_op op, int nranks, void *acc)
{
	uint64_t x;

	if (op != KOLO_AVG || !values_is_integer(type))
		return;
	x = load_int(type, acc);
	x = is_signed(type) ? (uint64_t)((int64_t)x / nranks) : x / (uint64_t)nranks;
	memcpy(acc, &x, kolo_type_size(type));
}
