/* The loops over elements, as a table (ZERO_KERNELS). This file is compiled once for each
 * instruction set, with another name for the table. It is plain C that compilers vectorise. What an
 * optimizer does to an element is in zero/optimizers. */
#include "zero/optim/kernels.h"

#include <string.h>

/* The update of each optimizer, as a loop. SGD may have no moment: two loops, which compilers make
 * of one condition. */
#define UPDATE(value, name, moments, whole)                                                        \
	static void name(float *restrict p, float *restrict m, float *restrict v,                  \
			 const float *restrict g, size_t n,                                        \
			 const struct kolo_zero_scalars *scalars)                                  \
	{                                                                                          \
		const struct kolo_zero_scalars s = *scalars;                                       \
		bool moving = m != NULL;                                                           \
                                                                                                   \
		for (size_t i = 0; i < n; i++)                                                     \
			zero_##name(i, p, m, v, g, &s, moving);                                    \
	}
ZERO_OPTIMIZERS(UPDATE)
#undef UPDATE

static void add_squares(struct zero_lanes *lanes, const float *restrict x, size_t n)
{
	double sum[ZERO_LANES];
	size_t i = 0;

	memcpy(sum, lanes->sum, sizeof(sum));
	for (; n - i >= ZERO_LANES; i += ZERO_LANES)
		for (size_t k = 0; k < ZERO_LANES; k++)
			sum[k] += (double)x[i + k] * (double)x[i + k];
	for (size_t k = 0; k < n - i; k++)
		sum[k] += (double)x[i + k] * (double)x[i + k];
	memcpy(lanes->sum, sum, sizeof(sum));
}

/* The bits of the largest value, without signs: those of infinity and of NaN are larger. */
static int32_t largest_bits(const float *restrict x, size_t n)
{
	int32_t most = 0;

	for (size_t i = 0; i < n; i++) {
		int32_t bits;

		memcpy(&bits, x + i, sizeof(bits));
		bits &= 0x7fffffff;
		most = bits > most ? bits : most;
	}
	return most;
}

enum { SQUARE_LANES = 8 }; /* that registers hold */

/* Sums of the bits of y + m, for m = zero_rounder(level). Integers add up without an error. */
struct digits {
	uint64_t sum[ZERO_LEVELS][SQUARE_LANES];
};

static inline void split_squares(struct digits *d, const float x[SQUARE_LANES],
				 const double m[ZERO_LEVELS])
{
	double y[SQUARE_LANES], t[SQUARE_LANES];
	uint64_t bits[SQUARE_LANES];

	for (size_t k = 0; k < SQUARE_LANES; k++)
		y[k] = (double)x[k] * (double)x[k];
	for (int l = 0; l < ZERO_LEVELS; l++) {
		for (size_t k = 0; k < SQUARE_LANES; k++)
			t[k] = y[k] + m[l];
		for (size_t k = 0; k < SQUARE_LANES; k++)
			y[k] -= t[k] - m[l];
		memcpy(bits, t, sizeof(bits));
		for (size_t k = 0; k < SQUARE_LANES; k++)
			d->sum[l][k] += bits[k];
	}
}

static void squares(struct zero_squares *sum, const float *restrict x, size_t n)
{
	struct zero_squares own = zero_squares_none();
	int32_t most = largest_bits(x, n);
	float largest;
	double m[ZERO_LEVELS];
	struct digits d = { 0 };
	uint64_t calls = 0;
	size_t i = 0;

	memcpy(&largest, &most, sizeof(largest));
	own.level = zero_level_of((uint32_t)most, largest);
	if (own.level == ZERO_NO_LEVEL)
		return;
	if (own.level != ZERO_NOT_FINITE) {
		for (int l = 0; l < ZERO_LEVELS; l++)
			m[l] = zero_rounder(own.level - l);
		for (; n - i >= SQUARE_LANES; i += SQUARE_LANES, calls++)
			split_squares(&d, x + i, m);
		if (i < n) {
			float rest[SQUARE_LANES] = { 0 };

			memcpy(rest, x + i, (n - i) * sizeof(*rest));
			split_squares(&d, rest, m);
			calls++;
		}
		for (int l = 0; l < ZERO_LEVELS; l++) {
			uint64_t bits;

			memcpy(&bits, &m[l], sizeof(bits));
			own.digits[l] = 0;
			for (size_t k = 0; k < SQUARE_LANES; k++)
				own.digits[l] += (int64_t)(d.sum[l][k] - calls * bits);
		}
	}
	zero_squares_add(sum, &own);
}

/* First the updates, then their squares: compilers see two simple loops. */
static void lamb_moments(const float *restrict p, float *restrict m, float *restrict v,
			 const float *restrict g, size_t n, const struct kolo_zero_scalars *scalars,
			 struct zero_lanes *p2, struct zero_lanes *u2)
{
	enum { STEP = 16 * ZERO_LANES };
	const struct kolo_zero_scalars s = *scalars;
	float u[STEP];

	for (size_t at = 0, k; at < n; at += k) {
		k = n - at < STEP ? n - at : STEP;
		for (size_t i = 0; i < k; i++) {
			zero_adam_moments(&m[at + i], &v[at + i], g[at + i], &s);
			u[i] = zero_lamb_step(p[at + i], m[at + i], v[at + i], &s);
		}
		add_squares(p2, p + at, k);
		add_squares(u2, u, k);
	}
}

static void add(float *restrict sum, const float *restrict x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum[i] += x[i];
}

static bool finite_16(const uint16_t *x, size_t n, uint16_t exponent)
{
	uint16_t bad = 0;

	for (size_t i = 0; i < n; i++)
		bad |= (x[i] & exponent) == exponent;
	return !bad;
}

static bool finite_32(const float *x, size_t n)
{
	uint32_t bad = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &x[i], sizeof(bits));
		bad |= (bits & 0x7f800000) == 0x7f800000;
	}
	return !bad;
}

/* The number of an element at an index. Different elements at an index have different numbers,
 * because a product of two 32-bit numbers loses nothing, and the exclusive or with its upper bits
 * loses nothing. Without the exclusive or, a sum would not change if two elements changed
 * places. */
static inline uint64_t number_of(uint32_t element, uint64_t index)
{
	uint32_t key = (uint32_t)index * 0x9e3779b1u + (uint32_t)(index >> 32) * 0x85ebca77u;
	uint64_t x = (uint64_t)(element ^ key) * 0xc2b2ae3du;

	return x ^ x >> 29;
}

static uint64_t checksum(const void *x, size_t size, size_t n, uint64_t first)
{
	uint64_t sum = 0;

	for (size_t i = 0; size == sizeof(uint32_t) && i < n; i++) {
		uint32_t wide;

		memcpy(&wide, (const char *)x + i * sizeof(wide), sizeof(wide));
		sum += number_of(wide, first + i);
	}
	for (size_t i = 0; size == sizeof(uint16_t) && i < n; i++) {
		uint16_t narrow;

		memcpy(&narrow, (const char *)x + i * sizeof(narrow), sizeof(narrow));
		sum += number_of(narrow, first + i);
	}
	return sum;
}

#define ROW(value, name, moments, whole) [value] = name,
extern const struct zero_kernels ZERO_KERNELS;
const struct zero_kernels ZERO_KERNELS = {
	.update = { ZERO_OPTIMIZERS(ROW) },
	.lamb_moments = lamb_moments,
	.add_squares = add_squares,
	.squares = squares,
	.add = add,
	.finite_16 = finite_16,
	.finite_32 = finite_32,
	.checksum = checksum,
};
