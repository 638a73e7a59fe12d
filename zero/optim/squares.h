/* A sum of squares of floats that does not depend on the order of additions, nor on how they are
 * divided over threads, tensors and ranks: Demmel and Nguyen 2015, "Parallel reproducible
 * summation", with fixed levels.
 *
 * Level k has the unit u(k) = 2^(26 k - 300). A square is rounded to multiples of u(K), the rest of
 * it to multiples of u(K - 1), and the rest of that to multiples of u(K - 2). K is the lowest level
 * whose next unit is more than twice the largest square. Each of these numbers is a whole number of
 * units, at most 2^25, so integers add up 2^37 of them without an error. What is below u(K - 2) is
 * left out: at most 2^-52 of the largest square, for each square.
 *
 * A sum whose K was lower, because its squares are smaller, has the same digits at the levels that
 * count: together they are the square rounded to multiples of the lowest one. */
#ifndef ZERO_OPTIM_SQUARES_H
#define ZERO_OPTIM_SQUARES_H

#include <stdint.h>

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

static inline struct zero_squares zero_squares_none(void)
{
	return (struct zero_squares){ .level = ZERO_NO_LEVEL };
}

/* 2^e, of normal numbers. */
static inline double zero_power_of_2(int e)
{
	union {
		uint64_t bits;
		double value;
	} x = { .bits = (uint64_t)(e + 1023) << 52 };

	return x.value;
}

/* The unit of a level. */
static inline double zero_unit(int64_t level)
{
	return zero_power_of_2((int)(ZERO_LEVEL_BITS * level) - 300);
}

/* The level of a sum whose largest square is below 2^(e + 1). */
static inline int64_t zero_level(int e)
{
	return (e + 301 + ZERO_LEVEL_BITS) / ZERO_LEVEL_BITS - 1;
}

/* a += b. */
void zero_squares_add(struct zero_squares *a, const struct zero_squares *b);

/* Adds a number that is a sum of squares itself, as other devices give them. */
void zero_squares_add_number(struct zero_squares *a, double x);

/* The sum, rounded once; NaN: a float was not finite. */
double zero_squares_value(const struct zero_squares *s);

#endif
