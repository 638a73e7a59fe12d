/* Chooses the loops for this processor (ko_kernels_list) and for an operation (ko_reducer_make).
 * Streams results in pieces that stay in cache. Converts types (kolo_cast), and names types and
 * ops. */
#include "comm/reduce/reduce.h"

#include "comm/base/error.h"
#include "comm/reduce/convert.h"

#include <string.h>

#ifdef KO_HAVE_X86_KERNELS
#include <cpuid.h>
#endif

extern const struct ko_kernels ko_kernels_plain, ko_kernels_avx2, ko_kernels_avx512;

#ifdef KO_HAVE_X86_KERNELS
/* Does the processor have F16C, the conversions between f16 and float? clang's
 * __builtin_cpu_supports does not know it by name. */
static int has_f16c(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* How many of the tables in `lists` this processor can run. */
static int count_kernels(void)
{
	if (!__builtin_cpu_supports("avx2") || !has_f16c())
		return 1;
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
			       __builtin_cpu_supports("avx512vl") &&
			       __builtin_cpu_supports("avx512dq")
		       ? 3
		       : 2;
}
#endif

/* Returns count_kernels(), asked only once: cpuid is slow in a virtual machine. */
static int number_of_kernels(void)
{
#ifdef KO_HAVE_X86_KERNELS
	static _Atomic int n;

	if (!n)
		n = count_kernels();
	return n;
#else
	return 1;
#endif
}

static const struct ko_kernels *const lists[][4] = {
	{ &ko_kernels_plain, NULL },
#ifdef KO_HAVE_X86_KERNELS
	{ &ko_kernels_plain, &ko_kernels_avx2, NULL },
	{ &ko_kernels_plain, &ko_kernels_avx2, &ko_kernels_avx512, NULL },
#endif
};

const struct ko_kernels *const *ko_kernels_list(void)
{
	return lists[number_of_kernels() - 1];
}

static const struct ko_kernels *best_kernels(void)
{
	int n = number_of_kernels();

	return lists[n - 1][n - 1];
}

/* Those without vectors of 64 bytes, which make nothing faster that computes little, and are slow
 * at first on a core that has used none for a while (why: D210 in comm/DECISIONS.md). */
static const struct ko_kernels *light_kernels(void)
{
	int n = number_of_kernels();

	return lists[n - 1][n > 1];
}

/* Does combining take longer than a copy, with vectors of 32 bytes? */
static bool computes_much(enum kolo_type type, enum ko_combine how)
{
	switch (type) {
	case KOLO_BF16:
	case KOLO_F8E4M3:
	case KOLO_F8E5M2: return true;
	case KOLO_F16:
	case KOLO_F32:
	case KOLO_F64: return how == KO_MIN || how == KO_MAX;
	case KOLO_C64:
	case KOLO_C128: return how == KO_PROD;
	default: return false;
	}
}

static const struct ko_kernels *kernels_for(enum kolo_type type, enum ko_combine how)
{
	return computes_much(type, how) ? best_kernels() : light_kernels();
}

static const enum ko_combine of_op[KO_NOPS] = {
	[KOLO_SUM] = KO_SUM,       [KOLO_PROD] = KO_PROD, [KOLO_MIN] = KO_MIN,
	[KOLO_MAX] = KO_MAX,       [KOLO_AVG] = KO_SUM,   [KOLO_BAND] = KO_BAND,
	[KOLO_BOR] = KO_BOR,       [KOLO_BXOR] = KO_BXOR, [KOLO_LAND] = KO_LAND,
	[KOLO_LOR] = KO_LOR,       [KOLO_LXOR] = KO_LXOR, [KOLO_MINLOC] = KO_MINLOC,
	[KOLO_MAXLOC] = KO_MAXLOC,
};

bool ko_type_has_op(enum kolo_type type, enum kolo_op op)
{
	return !ko_type_is_bytes(type) && ko_type_combines(type, of_op[op]);
}

bool ko_type_has_premul(enum kolo_type type)
{
	return !ko_type_is_bytes(type) && !ko_type_is_complex(type) &&
	       ko_type_combines(type, KO_SUM_SCALED);
}

struct ko_reducer ko_reducer_make(enum kolo_type type, enum kolo_op op, int nranks)
{
	const struct ko_kernels *k = kernels_for(type, of_op[op]);
	struct ko_reducer r = { .first = ko_copy(type),
				.combine = k->combine[type][of_op[op]],
				.finish = ko_copy(type),
				.how = of_op[op] };

	if (ko_is_logical(r.how)) {
		r.scales = true;
		r.first = k->truth[type];
	} else if (op == KOLO_AVG && ko_type_is_integer(type)) {
		r.divides = true;
		r.finish = k->divide[type];
		r.s.u64 = (uint64_t)nranks;
	} else if (op == KOLO_AVG) {
		r.scales = true;
		r.how = KO_SUM_SCALED;
		r.first = k->scale[type];
		r.combine = k->combine[type][KO_SUM_SCALED];
		if (type == KOLO_F64 || type == KOLO_C128)
			r.s.f64 = 1.0 / nranks;
		else
			r.s.f32 = 1.0f / (float)nranks;
	}
	return r;
}

/* One element of `type`, in the type in which the loops want a factor. */
static union ko_scalar read_scalar(enum kolo_type type, const void *scalar)
{
	union ko_scalar s = { .u64 = 0 };
	uint16_t half;
	uint8_t byte;

	memcpy(&half, scalar, kolo_type_size(type) > 1 ? sizeof(half) : 1);
	memcpy(&byte, scalar, sizeof(byte));
	switch (type) {
	case KOLO_F16: s.f32 = ko_float_of_f16(half); break;
	case KOLO_BF16: s.f32 = ko_float_of_bf16(half); break;
	case KOLO_F8E4M3: s.f32 = ko_float_of_f8e4m3(byte); break;
	case KOLO_F8E5M2: s.f32 = ko_float_of_f8e5m2(byte); break;
	case KOLO_F32: memcpy(&s.f32, scalar, sizeof(s.f32)); break;
	case KOLO_F64: memcpy(&s.f64, scalar, sizeof(s.f64)); break;
	/* Products that wrap need the low bytes only. */
	default: memcpy(&s.u64, scalar, kolo_type_size(type)); break;
	}
	return s;
}

struct ko_reducer ko_reducer_premul(enum kolo_type type, const void *scalar)
{
	const struct ko_kernels *k = kernels_for(type, KO_SUM_SCALED);

	return (struct ko_reducer){ .first = k->scale[type],
				    .combine = k->combine[type][KO_SUM_SCALED],
				    .finish = ko_copy(type),
				    .s = read_scalar(type, scalar),
				    .how = KO_SUM_SCALED,
				    .scales = true };
}

static void copy_made(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	if (out != src)
		ko_copy_bytes(out, src, n * s->made->size);
}

static void combine_made(void *out, const void *in, const void *own, size_t n,
			 const union ko_scalar *s)
{
	if (n)
		s->made->combine(s->made->arg, out, in, own, n);
}

struct ko_reducer ko_reducer_of_made(const struct ko_made *made)
{
	return (struct ko_reducer){ .first = copy_made,
				    .combine = combine_made,
				    .finish = copy_made,
				    .s.made = made,
				    .how = KO_MADE };
}

struct ko_reducer ko_reducer_of_sums(struct ko_reducer r, enum kolo_type type)
{
	if (r.how == KO_SUM_SCALED) {
		r.how = KO_SUM;
		r.combine = kernels_for(type, KO_SUM)->combine[type][KO_SUM];
	}
	return r;
}

ko_fill_fn *ko_copy(enum kolo_type type)
{
	return light_kernels()->copy[type];
}

void ko_copy_by_loop(void *out, const void *src, size_t len)
{
	light_kernels()->copy_by_loop(out, src, len);
}

bool ko_is_intel(void)
{
#ifdef KO_HAVE_X86_KERNELS
	return __builtin_cpu_is("intel");
#else
	return false;
#endif
}

bool ko_expects_one_way(size_t bytes)
{
	enum { MOST = 2 << 10, INTELS_MOST = 4 << 10 };

	return bytes <= (size_t)(ko_is_intel() ? INTELS_MOST : MOST);
}

/* ---- Streaming ------------------------------------------------------------------------------- */

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

void ko_stream_copy(void *out, const void *src, size_t len)
{
	best_kernels()->stream(out, src, len);
}

void ko_stream_fence(void)
{
#ifdef __x86_64__
	__builtin_ia32_sfence();
#endif
}

void ko_stream_fill(ko_fill_fn *fn, void *out, const void *src, size_t n, size_t size,
		    const union ko_scalar *s)
{
	_Alignas(64) char scratch[KO_STREAM_STEP];
	size_t step = KO_STREAM_STEP / size;

	for (size_t at = 0; at < n; at += step) {
		size_t m = min_size(step, n - at);

		fn(scratch, (const char *)src + at * size, m, s);
		ko_stream_copy((char *)out + at * size, scratch, m * size);
	}
}

/* Fetches bytes that another core has written: all lines at once, since the processor looks ahead
 * by a few only. */
static void expect_to_read(const char *p, size_t len)
{
	enum { LINE = 64 };

	for (size_t at = 0; at < len; at += LINE)
		__builtin_prefetch(p + at);
}

void ko_stream_combine(ko_combine_fn *combine, void *out, const void *in, const void *own, size_t n,
		       size_t size, const union ko_scalar *s)
{
	_Alignas(64) char scratch[KO_STREAM_STEP];
	size_t step = KO_STREAM_STEP / size;

	for (size_t at = 0; at < n; at += step) {
		size_t m = min_size(step, n - at);

		expect_to_read((const char *)in + (at + m) * size,
			       min_size(step, n - at - m) * size);
		combine(scratch, (const char *)in + at * size, (const char *)own + at * size, m, s);
		ko_stream_copy((char *)out + at * size, scratch, m * size);
	}
}

/* ---- Between types --------------------------------------------------------------------------- */

static const char *name_of(enum kolo_type type)
{
	const char *name = kolo_type_name(type);

	return name ? name : "no type";
}

/* Neither type is float: converts through floats, a few at a time. */
static void cast_through_float(const struct ko_kernels *k, const char *src, enum kolo_type src_type,
			       char *dst, enum kolo_type dst_type, size_t n, float scale)
{
	enum { STEP = 512 };
	float x[STEP];

	for (size_t at = 0; at < n; at += STEP) {
		size_t m = min_size(STEP, n - at);

		k->to_float[src_type](x, src + at * kolo_type_size(src_type), m,
				      &(union ko_scalar){ .f32 = scale });
		k->of_float[dst_type](dst + at * kolo_type_size(dst_type), x, m,
				      &(union ko_scalar){ .f32 = 1 });
	}
}

int kolo_cast(const void *src, enum kolo_type src_type, void *dst, enum kolo_type dst_type,
	      size_t n, float scale)
{
	const struct ko_kernels *k = best_kernels();
	union ko_scalar s = { .f32 = scale };

	if ((unsigned)src_type >= KO_NTYPES || (unsigned)dst_type >= KO_NTYPES ||
	    !k->to_float[src_type] || !k->to_float[dst_type])
		return ko_fail(KOLO_EINVAL,
			       "cast from %s to %s: both must be floating types of at most 32 bits",
			       name_of(src_type), name_of(dst_type));
	if (!src || !dst)
		return n ? ko_fail(KOLO_EINVAL, "cast of %zu elements: a buffer is NULL", n)
			 : KOLO_OK;
	if (src_type == dst_type)
		k->scale[src_type](dst, src, n, &s);
	else if (dst_type == KOLO_F32)
		k->to_float[src_type](dst, src, n, &s);
	else if (src_type == KOLO_F32)
		k->of_float[dst_type](dst, src, n, &s);
	else
		cast_through_float(k, src, src_type, dst, dst_type, n, scale);
	return KOLO_OK;
}

/* ---- Types and ops by name ------------------------------------------------------------------- */

static const struct {
	const char *name;
	size_t size;
} types[KO_NTYPES] = {
	[KOLO_I8] = { "i8", 1 },           [KOLO_U8] = { "u8", 1 },
	[KOLO_I32] = { "i32", 4 },         [KOLO_U32] = { "u32", 4 },
	[KOLO_I64] = { "i64", 8 },         [KOLO_U64] = { "u64", 8 },
	[KOLO_F16] = { "f16", 2 },         [KOLO_BF16] = { "bf16", 2 },
	[KOLO_F32] = { "f32", 4 },         [KOLO_F64] = { "f64", 8 },
	[KOLO_F8E4M3] = { "f8e4m3", 1 },   [KOLO_F8E5M2] = { "f8e5m2", 1 },
	[KOLO_I16] = { "i16", 2 },         [KOLO_U16] = { "u16", 2 },
	[KOLO_C64] = { "c64", 8 },         [KOLO_C128] = { "c128", 16 },
	[KOLO_I32_I32] = { "i32_i32", 8 }, [KOLO_I64_I32] = { "i64_i32", 16 },
	[KOLO_F32_I32] = { "f32_i32", 8 }, [KOLO_F64_I32] = { "f64_i32", 16 },
};

/* Types of kolo_type_bytes: BYTES + size. */
enum { BYTES = 0x1000 };

enum kolo_type kolo_type_bytes(size_t size)
{
	return (enum kolo_type)(BYTES + (size <= KOLO_MOST_BYTES ? (int)size : 0));
}

size_t kolo_type_size(enum kolo_type type)
{
	unsigned t = (unsigned)type;

	if (t < KO_NTYPES)
		return types[t].size;
	return t > BYTES && t <= BYTES + KOLO_MOST_BYTES ? t - BYTES : 0;
}

const char *kolo_type_name(enum kolo_type type)
{
	if (ko_type_is_bytes(type))
		return kolo_type_size(type) ? "bytes" : NULL;
	return types[type].name;
}

const char *kolo_op_name(enum kolo_op op)
{
	static const char *const names[KO_NOPS] = {
		[KOLO_SUM] = "sum",       [KOLO_PROD] = "prod", [KOLO_MIN] = "min",
		[KOLO_MAX] = "max",       [KOLO_AVG] = "avg",   [KOLO_BAND] = "band",
		[KOLO_BOR] = "bor",       [KOLO_BXOR] = "bxor", [KOLO_LAND] = "land",
		[KOLO_LOR] = "lor",       [KOLO_LXOR] = "lxor", [KOLO_MINLOC] = "minloc",
		[KOLO_MAXLOC] = "maxloc",
	};

	return (unsigned)op < KO_NOPS ? names[op] : NULL;
}
