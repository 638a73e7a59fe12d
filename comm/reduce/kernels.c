/* The table of loops over elements (KO_KERNELS). This file is compiled once for each instruction
 * set; KO_KERNELS is then the name of the table. The loops are plain C in types.h, which compilers
 * vectorise. Only f16 uses instructions of its own (vcvtph2ps, vcvtps2ph).
 *
 * The table for the bare architecture is the reference. The others give the same bits:
 * -ffp-contract=off, no -ffast-math, and a test compares them. */
#include "comm/reduce/convert.h"
#include "comm/reduce/reduce.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Types of elements in buffers, which need no alignment and may have another type for the
 * caller. */
#define ANYWHERE __attribute__((aligned(1), may_alias))
typedef int8_t ANYWHERE any_i8;
typedef uint8_t ANYWHERE any_u8;
typedef int16_t ANYWHERE any_i16;
typedef uint16_t ANYWHERE any_u16;
typedef int32_t ANYWHERE any_i32;
typedef uint32_t ANYWHERE any_u32;
typedef int64_t ANYWHERE any_i64;
typedef uint64_t ANYWHERE any_u64;
typedef float ANYWHERE any_f32;
typedef double ANYWHERE any_f64;

/* For a loop whose out[i] depends on in[i] and own[i] only: it may be vectorised even if out ==
 * own. */
#ifdef __clang__
#define ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define ELEMENTWISE _Pragma("GCC ivdep")
#endif

#define PASTE(a, b)          a##_##b
#define PASTE_EXPANDED(a, b) PASTE(a, b)
#define FN(verb)             PASTE_EXPANDED(verb, NAME)

/* How loops are declared. */
#define LOOP static

/* Elements that loops over narrow types widen at a time: two vectors of 16 floats. */
enum { BLOCK = 32 };

static inline void widen_f16(float *out, const any_u16 *in)
{
#if defined(__AVX512F__)
	for (int i = 0; i < BLOCK; i += 16)
		_mm512_storeu_ps(out + i,
				 _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(in + i))));
#elif defined(__F16C__)
	for (int i = 0; i < BLOCK; i += 8)
		_mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(in + i))));
#else
	for (int i = 0; i < BLOCK; i++)
		out[i] = ko_float_of_f16(in[i]);
#endif
}

static inline void narrow_f16(any_u16 *out, const float *in)
{
#if defined(__AVX512F__)
	for (int i = 0; i < BLOCK; i += 16)
		_mm256_storeu_si256((void *)(out + i), _mm512_cvtps_ph(_mm512_loadu_ps(in + i),
								       _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
	for (int i = 0; i < BLOCK; i += 8)
		_mm_storeu_si128((void *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i),
								    _MM_FROUND_TO_NEAREST_INT));
#else
	for (int i = 0; i < BLOCK; i++)
		out[i] = ko_f16_of_float(in[i]);
#endif
}

#if defined(__AVX512F__)
/* These functions do what convert.h does to one element, 16 at a time. gcc makes slow code of the
 * plain loops. */

static inline __m512i ones(uint32_t x)
{
	return _mm512_set1_epi32((int)x);
}

static inline void widen_bf16(float *out, const any_u16 *in)
{
	for (int i = 0; i < BLOCK; i += 16)
		_mm512_storeu_si512(out + i,
				    _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(
							      (const void *)(in + i))),
						      16));
}

static inline void narrow_bf16(any_u16 *out, const float *in)
{
	for (int i = 0; i < BLOCK; i += 16) {
		__m512i bits = _mm512_loadu_si512(in + i), high = _mm512_srli_epi32(bits, 16);
		__m512i half = _mm512_add_epi32(ones(0x7fff), _mm512_and_si512(high, ones(1)));
		__m512i even = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
		__mmask16 nan = _mm512_cmpgt_epu32_mask(_mm512_and_si512(bits, ones(0x7fffffff)),
							ones(0x7f800000));

		even = _mm512_mask_or_epi32(even, nan, high, ones(0x40));
		_mm256_storeu_si256((void *)(out + i), _mm512_cvtepi32_epi16(even));
	}
}

/* Both 8-bit formats are f16 with fewer bits; f8e4m3 also has another bias. */
static inline __m512 widen_f8(const any_u8 *in, int shift)
{
	__m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)in));
	__m256i sign = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x80)), 8);

	code = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x7f)), shift);
	return _mm512_cvtph_ps(_mm256_or_si256(code, sign));
}

static inline void narrow_f8(any_u8 *out, const float *in, struct ko_format f)
{
	unsigned drop = 23 - (unsigned)f.mant;
	uint32_t least = (uint32_t)(127 + 1 - f.bias), magic = (least + 23 - (uint32_t)f.mant)
							       << 23;

	for (int i = 0; i < BLOCK; i += 16) {
		__m512i x = _mm512_loadu_si512(in + i),
			bits = _mm512_and_si512(x, ones(0x7fffffff));
		__m512 rounded =
			_mm512_add_ps(_mm512_castsi512_ps(bits), _mm512_castsi512_ps(ones(magic)));
		__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, drop), ones(1));
		__m512i even =
			_mm512_add_epi32(bits, _mm512_add_epi32(ones((1u << (drop - 1)) - 1), odd));
		__m512i code = _mm512_sub_epi32(_mm512_srli_epi32(even, drop),
						ones((least - 1) << f.mant));

		code = _mm512_mask_sub_epi32(code, _mm512_cmplt_epu32_mask(bits, ones(least << 23)),
					     _mm512_castps_si512(rounded), ones(magic));
		code = _mm512_mask_mov_epi32(code, _mm512_cmpgt_epu32_mask(code, ones(f.finite)),
					     ones(f.over));
		code = _mm512_mask_mov_epi32(code, _mm512_cmpgt_epu32_mask(bits, ones(0x7f800000)),
					     ones(f.nan));
		code = _mm512_or_si512(code,
				       _mm512_and_si512(_mm512_srli_epi32(x, 24), ones(0x80)));
		_mm_storeu_si128((void *)(out + i), _mm512_cvtepi32_epi8(code));
	}
}

static inline void widen_f8e5m2(float *out, const any_u8 *in)
{
	for (int i = 0; i < BLOCK; i += 16)
		_mm512_storeu_ps(out + i, widen_f8(in + i, 8));
}

static inline void widen_f8e4m3(float *out, const any_u8 *in)
{
	for (int i = 0; i < BLOCK; i += 16) {
		__m512 x = _mm512_mul_ps(widen_f8(in + i, 7), _mm512_set1_ps(256));
		__m512i bits = _mm512_and_si512(_mm512_castps_si512(x), ones(0x7fffffff));
		/* A NaN of f8e4m3 comes out as 480: its code would stand for that number. */
		__mmask16 nan =
			_mm512_cmpeq_epi32_mask(bits, _mm512_castps_si512(_mm512_set1_ps(480)));

		_mm512_storeu_ps(out + i,
				 _mm512_mask_mov_ps(x, nan, _mm512_castsi512_ps(ones(0x7fc00000))));
	}
}
#else
static inline void widen_bf16(float *out, const any_u16 *in)
{
	for (int i = 0; i < BLOCK; i++)
		out[i] = ko_float_of_bf16(in[i]);
}

static inline void narrow_bf16(any_u16 *out, const float *in)
{
	for (int i = 0; i < BLOCK; i++)
		out[i] = ko_bf16_of_float(in[i]);
}

static inline void widen_f8e4m3(float *out, const any_u8 *in)
{
	for (int i = 0; i < BLOCK; i++)
		out[i] = ko_float_of_f8e4m3(in[i]);
}

static inline void widen_f8e5m2(float *out, const any_u8 *in)
{
	for (int i = 0; i < BLOCK; i++)
		out[i] = ko_float_of_f8e5m2(in[i]);
}

static inline void narrow_f8(any_u8 *out, const float *in, struct ko_format f)
{
	for (int i = 0; i < BLOCK; i++)
		out[i] = (uint8_t)(ko_narrow(in[i], f) | (ko_bits_of_float(in[i]) >> 24 & 0x80));
}
#endif

static inline void narrow_f8e4m3(any_u8 *out, const float *in)
{
	narrow_f8(out, in, ko_f8e4m3());
}

static inline void narrow_f8e5m2(any_u8 *out, const float *in)
{
	narrow_f8(out, in, ko_f8e5m2());
}

#include "comm/reduce/types.h"

/* Bytes anywhere, no more than a vector has: gcc takes larger ones through the stack. With AVX-512
 * they have 32 too (why: D210 in comm/DECISIONS.md). */
#ifdef __AVX__
typedef char vector __attribute__((vector_size(32), aligned(1), may_alias));
#else
typedef char vector __attribute__((vector_size(16), aligned(1), may_alias));
#endif

static void copy_by_loop(void *to, const void *from, size_t len)
{
	char *out = to;
	const char *src = from;
	size_t at = 0;

	for (; at + 4 * sizeof(vector) <= len; at += 4 * sizeof(vector)) {
		const vector *in = (const vector *)(src + at);
		vector a = in[0], b = in[1], c = in[2], d = in[3], *back = (vector *)(out + at);

		back[0] = a;
		back[1] = b;
		back[2] = c;
		back[3] = d;
		__asm__ volatile("" ::: "memory"); /* or else the compiler makes a memcpy of it */
	}
	memcpy(out + at, src + at, len - at);
}

static void copy_bytes(void *out, const void *src, size_t len)
{
	if (out == src)
		return;
	if (ko_memcpy_is_slow(out, src, len))
		copy_by_loop(out, src, len);
	else
		memcpy(out, src, len);
}

static void copy_1(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	(void)s;
	copy_bytes(out, src, n);
}

static void copy_2(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	(void)s;
	copy_bytes(out, src, n * 2);
}

static void copy_4(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	(void)s;
	copy_bytes(out, src, n * 4);
}

static void copy_8(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	(void)s;
	copy_bytes(out, src, n * 8);
}

static void copy_16(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	(void)s;
	copy_bytes(out, src, n * 16);
}

/* Stores past the caches, if the machine has such stores. The bytes before and after the whole
 * vectors are stored as usual. ko_stream_fence orders these stores. */
#if defined(__AVX512F__)
enum { STREAM = 64 };
static inline void stream_vector(char *out, const char *src)
{
	_mm512_stream_si512((void *)out, _mm512_loadu_si512(src));
}
#elif defined(__AVX2__)
enum { STREAM = 32 };
static inline void stream_vector(char *out, const char *src)
{
	_mm256_stream_si256((void *)out, _mm256_loadu_si256((const void *)src));
}
#elif defined(__x86_64__)
enum { STREAM = 16 };
static inline void stream_vector(char *out, const char *src)
{
	_mm_stream_si128((void *)out, _mm_loadu_si128((const void *)src));
}
#endif

static void stream(void *to, const void *from, size_t len)
{
#if defined(__x86_64__)
	char *out = to;
	const char *src = from;
	size_t head = -(uintptr_t)out % STREAM;

	if (head > len)
		head = len;
	memcpy(out, src, head);
	for (out += head, src += head, len -= head; len >= STREAM; len -= STREAM) {
		stream_vector(out, src);
		out += STREAM;
		src += STREAM;
	}
	memcpy(out, src, len);
#else
	memcpy(to, from, len);
#endif
}

#define ALL_OF(type)                                                                               \
	[KO_SUM] = sum_##type, [KO_PROD] = prod_##type, [KO_MIN] = min_##type,                     \
	[KO_MAX] = max_##type, [KO_SUM_SCALED] = sum_scaled_##type
#define FLOAT(type)                                                                                \
	{                                                                                          \
		ALL_OF(type)                                                                       \
	}
#define INTEGER(type)                                                                              \
	{                                                                                          \
		ALL_OF(type), [KO_BAND] = band_##type, [KO_BOR] = bor_##type,                      \
			      [KO_BXOR] = bxor_##type, [KO_LAND] = land_##type,                    \
			      [KO_LOR] = lor_##type, [KO_LXOR] = lxor_##type                       \
	}
#define COMPLEX(type)                                                                              \
	{                                                                                          \
		[KO_SUM] = sum_##type, [KO_PROD] = prod_##type,                                    \
		[KO_SUM_SCALED] = sum_scaled_##type                                                \
	}
#define PAIR(type)                                                                                 \
	{                                                                                          \
		[KO_MINLOC] = minloc_##type, [KO_MAXLOC] = maxloc_##type                           \
	}

extern const struct ko_kernels KO_KERNELS;
const struct ko_kernels KO_KERNELS = {
	.combine = {
		[KOLO_I8] = INTEGER(i8), [KOLO_U8] = INTEGER(u8), [KOLO_I16] = INTEGER(i16), [KOLO_U16] = INTEGER(u16),
		[KOLO_I32] = INTEGER(i32), [KOLO_U32] = INTEGER(u32), [KOLO_I64] = INTEGER(i64), [KOLO_U64] = INTEGER(u64),
		[KOLO_F16] = FLOAT(f16), [KOLO_BF16] = FLOAT(bf16), [KOLO_F32] = FLOAT(f32), [KOLO_F64] = FLOAT(f64),
		[KOLO_F8E4M3] = FLOAT(f8e4m3), [KOLO_F8E5M2] = FLOAT(f8e5m2),
		[KOLO_C64] = COMPLEX(c64), [KOLO_C128] = COMPLEX(c128),
		[KOLO_I32_I32] = PAIR(i32_i32), [KOLO_I64_I32] = PAIR(i64_i32),
		[KOLO_F32_I32] = PAIR(f32_i32), [KOLO_F64_I32] = PAIR(f64_i32),
	},
	.copy = {
		[KOLO_I8] = copy_1, [KOLO_U8] = copy_1, [KOLO_I16] = copy_2, [KOLO_U16] = copy_2,
		[KOLO_I32] = copy_4, [KOLO_U32] = copy_4, [KOLO_I64] = copy_8, [KOLO_U64] = copy_8,
		[KOLO_F16] = copy_2, [KOLO_BF16] = copy_2, [KOLO_F32] = copy_4, [KOLO_F64] = copy_8,
		[KOLO_F8E4M3] = copy_1, [KOLO_F8E5M2] = copy_1, [KOLO_C64] = copy_8, [KOLO_C128] = copy_16,
		[KOLO_I32_I32] = copy_8, [KOLO_I64_I32] = copy_16, [KOLO_F32_I32] = copy_8, [KOLO_F64_I32] = copy_16,
	},
	.scale = {
		[KOLO_I8] = scale_i8, [KOLO_U8] = scale_u8, [KOLO_I16] = scale_i16, [KOLO_U16] = scale_u16,
		[KOLO_I32] = scale_i32, [KOLO_U32] = scale_u32, [KOLO_I64] = scale_i64, [KOLO_U64] = scale_u64,
		[KOLO_F16] = scale_f16, [KOLO_BF16] = scale_bf16, [KOLO_F32] = scale_f32, [KOLO_F64] = scale_f64,
		[KOLO_F8E4M3] = scale_f8e4m3, [KOLO_F8E5M2] = scale_f8e5m2,
		[KOLO_C64] = scale_c64, [KOLO_C128] = scale_c128,
	},
	.divide = {
		[KOLO_I8] = divide_i8, [KOLO_U8] = divide_u8, [KOLO_I16] = divide_i16, [KOLO_U16] = divide_u16,
		[KOLO_I32] = divide_i32, [KOLO_U32] = divide_u32, [KOLO_I64] = divide_i64, [KOLO_U64] = divide_u64,
		[KOLO_F16] = copy_2, [KOLO_BF16] = copy_2, [KOLO_F32] = copy_4, [KOLO_F64] = copy_8,
		[KOLO_F8E4M3] = copy_1, [KOLO_F8E5M2] = copy_1, [KOLO_C64] = copy_8, [KOLO_C128] = copy_16,
		[KOLO_I32_I32] = copy_8, [KOLO_I64_I32] = copy_16, [KOLO_F32_I32] = copy_8, [KOLO_F64_I32] = copy_16,
	},
	.truth = {
		[KOLO_I8] = truth_i8, [KOLO_U8] = truth_u8, [KOLO_I16] = truth_i16, [KOLO_U16] = truth_u16,
		[KOLO_I32] = truth_i32, [KOLO_U32] = truth_u32, [KOLO_I64] = truth_i64, [KOLO_U64] = truth_u64,
	},
	.to_float = {
		[KOLO_F16] = to_float_f16, [KOLO_BF16] = to_float_bf16, [KOLO_F32] = scale_f32,
		[KOLO_F8E4M3] = to_float_f8e4m3, [KOLO_F8E5M2] = to_float_f8e5m2,
	},
	.of_float = {
		[KOLO_F16] = of_float_f16, [KOLO_BF16] = of_float_bf16, [KOLO_F32] = scale_f32,
		[KOLO_F8E4M3] = of_float_f8e4m3, [KOLO_F8E5M2] = of_float_f8e5m2,
	},
	.stream = stream,
	.copy_by_loop = copy_by_loop,
};
