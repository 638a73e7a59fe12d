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

#include "zero/optim/levels.h"

static inline struct zero_squares zero_squares_none(void)
{
	return (struct zero_squares){ .level = ZERO_NO_LEVEL };
}

/* Adds a number that is a sum of squares itself, as other devices give them. */
void zero_squares_add_number(struct zero_squares *a, double x);

/* The sum, rounded once; NaN: a float was not finite. */
double zero_squares_value(const struct zero_squares *s);

#endif
