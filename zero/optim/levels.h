/* What hosts (C) and GPUs (C++ of CUDA) need to add squares up in any order (squares.h). */
#ifndef ZERO_OPTIM_LEVELS_H
#define ZERO_OPTIM_LEVELS_H

#include <stdbool.h>
#include <stdint.h>

/* A file for GPUs defines its own. */
#ifndef KO_INLINE
#define KO_INLINE static inline
#endif

enum {
	ZERO_LEVELS = 3,
	ZERO_LEVEL_BITS = 26,
	ZERO_NO_LEVEL = -1000, /* of a sum of nothing but zeros */
	ZERO_NOT_FINITE = 1000 /* instead of a level */
};

struct zero_squares {
	int64_t digits[ZERO_LEVELS]; /* units of `level`, and of the two below it */
	int64_t level;
};

union zero_double {
	double value;
	uint64_t bits;
};

/* The unit of a level. */
KO_INLINE double zero_unit(int64_t level)
{
	union zero_double x;

	x.bits = (uint64_t)(ZERO_LEVEL_BITS * level - 300 + 1023) << 52;
	return x.value;
}

/* The level of a sum whose largest square is below 2^(e + 1). */
KO_INLINE int64_t zero_level(int e)
{
	return (e + 301 + ZERO_LEVEL_BITS) / ZERO_LEVEL_BITS - 1;
}

/* The level of a sum whose largest float, x, has these bits without its sign. */
KO_INLINE int64_t zero_level_of(uint32_t bits, float x)
{
	union zero_double square;

	square.value = (double)x * (double)x;
	if (bits == 0)
		return ZERO_NO_LEVEL;
	return bits < 0x7f800000 ? zero_level((int)(square.bits >> 52) - 1023)
				 : (int64_t)ZERO_NOT_FINITE;
}

/* 1.5 2^52 units: the bits of this plus y are its own and the digit, y rounded to a multiple of the
 * unit. */
KO_INLINE double zero_rounder(int64_t level)
{
	return 6755399441055744.0 * zero_unit(level);
}

/* Moves digits down to where they are if the sum has a higher level. */
KO_INLINE void zero_squares_raise(struct zero_squares *s, int64_t level)
{
	bool none = s->level == ZERO_NO_LEVEL;
	int64_t up = level - s->level;

	for (int i = ZERO_LEVELS - 1; i >= 0; i--)
		s->digits[i] = !none && i >= up ? s->digits[i - up] : 0;
	s->level = level;
}

/* a += b. */
KO_INLINE void zero_squares_add(struct zero_squares *a, const struct zero_squares *b)
{
	struct zero_squares other = *b;

	if (other.level == ZERO_NO_LEVEL || a->level == ZERO_NOT_FINITE)
		return;
	if (other.level == ZERO_NOT_FINITE) {
		*a = other;
		return;
	}
	if (other.level > a->level)
		zero_squares_raise(a, other.level);
	else if (other.level < a->level)
		zero_squares_raise(&other, a->level);
	for (int i = 0; i < ZERO_LEVELS; i++)
		a->digits[i] += other.digits[i];
}

#endif
