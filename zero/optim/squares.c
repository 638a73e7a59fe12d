/* Adds numbers to a sum of squares, and gives its value. */
#include "zero/optim/squares.h"

#include <math.h>

void zero_squares_add_number(struct zero_squares *a, double x)
{
	struct zero_squares one = zero_squares_none();

	if (x == 0)
		return;
	one.level = isfinite(x) ? zero_level(ilogb(x)) : ZERO_NOT_FINITE;
	for (int i = 0; isfinite(x) && i < ZERO_LEVELS; i++) {
		double unit = zero_unit(one.level - i), digit = nearbyint(x / unit);

		one.digits[i] = (int64_t)digit;
		x -= digit * unit;
	}
	zero_squares_add(a, &one);
}

double zero_squares_value(const struct zero_squares *s)
{
	__int128 sum = 0;

	if (s->level == ZERO_NO_LEVEL)
		return 0;
	if (s->level == ZERO_NOT_FINITE)
		return NAN;
	for (int i = 0; i < ZERO_LEVELS; i++)
		sum = sum * ((int64_t)1 << ZERO_LEVEL_BITS) + s->digits[i];
	return (double)sum * zero_unit(s->level - (ZERO_LEVELS - 1));
}
