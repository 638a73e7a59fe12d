/* Adds sums of squares, and gives their value. */
#include "zero/optim/squares.h"

#include <math.h>

/* Moves digits down to where they are if the sum has a higher level. */
static void raise_level(struct zero_squares *s, int64_t level)
{
	int64_t up = s->level == ZERO_NO_LEVEL ? ZERO_LEVELS : level - s->level;

	for (int i = ZERO_LEVELS - 1; i >= 0; i--)
		s->digits[i] = i >= up ? s->digits[i - up] : 0;
	s->level = level;
}

void zero_squares_add(struct zero_squares *a, const struct zero_squares *b)
{
	struct zero_squares other = *b;

	if (other.level == ZERO_NO_LEVEL || a->level == ZERO_NOT_FINITE)
		return;
	if (other.level == ZERO_NOT_FINITE) {
		*a = other;
		return;
	}
	if (other.level > a->level)
		raise_level(a, other.level);
	else if (other.level < a->level)
		raise_level(&other, a->level);
	for (int i = 0; i < ZERO_LEVELS; i++)
		a->digits[i] += other.digits[i];
}

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
