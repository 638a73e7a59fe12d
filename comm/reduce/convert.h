/* Conversions between float and the 16- and 8-bit types. They round to nearest even. They have no
 * branches, so compilers can vectorise loops over them. NaN stays NaN; its payload may change. The
 * processor's modes FTZ and DAZ do not matter, except for bf16: its subnormals are float's. */
#ifndef COMM_REDUCE_CONVERT_H
#define COMM_REDUCE_CONVERT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A file for GPUs defines its own: this header is C, and C++ for GPUs. */
#ifndef KO_INLINE
#define KO_INLINE static inline
#endif

KO_INLINE float ko_float_of_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

KO_INLINE uint32_t ko_bits_of_float(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

/* A small floating format: a sign, an exponent, `mant` bits of mantissa. The codes below are
 * without the sign bit. Codes above `finite` are infinity, if the format has one, and NaNs. */
struct ko_format {
	int mant, bias;
	uint32_t finite; /* the largest finite code */
	/* the code of a value that is too large: infinity, or `finite` if the format saturates */
	uint32_t over;
	uint32_t nan;
};

KO_INLINE struct ko_format ko_f16(void)
{
	struct ko_format f = { 10, 15, 0x7bff, 0x7c00, 0x7e00 };

	return f;
}

KO_INLINE struct ko_format ko_f8e5m2(void)
{
	struct ko_format f = { 2, 15, 0x7b, 0x7c, 0x7e };

	return f;
}

KO_INLINE struct ko_format ko_f8e4m3(void)
{
	struct ko_format f = { 3, 7, 0x7e, 0x7e, 0x7f };

	return f;
}

/* first ? a : b, without a branch: both are computed. */
KO_INLINE uint32_t ko_select(bool first, uint32_t a, uint32_t b)
{
	return b ^ ((a ^ b) & -(uint32_t)first);
}

/* The float of `code`, which has no sign bit. */
KO_INLINE float ko_widen(uint32_t code, struct ko_format f)
{
	uint32_t normal = (code << (23 - f.mant)) + ((uint32_t)(127 - f.bias) << 23);
	/* A subnormal's value is its mantissa times 2^(1 - bias - mant). */
	float subnormal = (float)(int32_t)code *
			  ko_float_of_bits((uint32_t)(127 + 1 - f.bias - f.mant) << 23);
	uint32_t bits = ko_select(code >> f.mant, normal, ko_bits_of_float(subnormal));
	uint32_t special = ko_select(code == f.over, 0x7f800000, 0x7fc00000);

	return ko_float_of_bits(ko_select(code > f.finite, special, bits));
}

/* The code of |x|, without the sign bit. */
KO_INLINE uint32_t ko_narrow(float x, struct ko_format f)
{
	uint32_t bits = ko_bits_of_float(x) & 0x7fffffff;
	uint32_t drop = (uint32_t)(23 - f.mant);
	/* Adds a number whose last bit weighs as much as the format's last subnormal bit: so the
	 * processor rounds to that bit. */
	uint32_t magic = (uint32_t)(127 + 1 - f.bias - f.mant + 23) << 23;
	uint32_t subnormal =
		ko_bits_of_float(ko_float_of_bits(bits) + ko_float_of_bits(magic)) - magic;
	uint32_t even = bits + (1u << (drop - 1)) - 1 + ((bits >> drop) & 1);
	uint32_t normal = (even >> drop) - ((uint32_t)(127 - f.bias) << f.mant);
	uint32_t code = ko_select(bits < (uint32_t)(127 + 1 - f.bias) << 23, subnormal, normal);

	code = ko_select(code > f.finite, f.over, code);
	return ko_select(bits > 0x7f800000, f.nan, code);
}

KO_INLINE float ko_float_of_f16(uint16_t x)
{
	return ko_float_of_bits(ko_bits_of_float(ko_widen(x & 0x7fff, ko_f16())) |
				(uint32_t)(x & 0x8000) << 16);
}

KO_INLINE uint16_t ko_f16_of_float(float x)
{
	return (uint16_t)(ko_narrow(x, ko_f16()) | (ko_bits_of_float(x) >> 16 & 0x8000));
}

KO_INLINE float ko_float_of_bf16(uint16_t x)
{
	return ko_float_of_bits((uint32_t)x << 16);
}

KO_INLINE uint16_t ko_bf16_of_float(float x)
{
	uint32_t bits = ko_bits_of_float(x);
	uint32_t even = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

	return (uint16_t)ko_select((bits & 0x7fffffff) > 0x7f800000, bits >> 16 | 0x40, even);
}

KO_INLINE float ko_float_of_f8e4m3(uint8_t x)
{
	return ko_float_of_bits(ko_bits_of_float(ko_widen(x & 0x7f, ko_f8e4m3())) |
				(uint32_t)(x & 0x80) << 24);
}

KO_INLINE uint8_t ko_f8e4m3_of_float(float x)
{
	return (uint8_t)(ko_narrow(x, ko_f8e4m3()) | (ko_bits_of_float(x) >> 24 & 0x80));
}

KO_INLINE float ko_float_of_f8e5m2(uint8_t x)
{
	return ko_float_of_bits(ko_bits_of_float(ko_widen(x & 0x7f, ko_f8e5m2())) |
				(uint32_t)(x & 0x80) << 24);
}

KO_INLINE uint8_t ko_f8e5m2_of_float(float x)
{
	return (uint8_t)(ko_narrow(x, ko_f8e5m2()) | (ko_bits_of_float(x) >> 24 & 0x80));
}

#endif
