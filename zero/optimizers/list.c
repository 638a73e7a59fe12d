/* The table of optimizers: finds one by its number (zero_optimizer_row). */
#include "zero/optimizers/list.h"

#define ROW(value, name, moments, whole) [value] = { &zero_row_##name, moments, whole },
static const struct {
	const struct zero_optimizer *row;
	int moments;
	bool whole;
} rows[ZERO_NOPTIMIZERS] = { ZERO_OPTIMIZERS(ROW) };
#undef ROW

const struct zero_optimizer *zero_optimizer_row(enum kolo_zero_optimizer optimizer)
{
	return (unsigned)optimizer < ZERO_NOPTIMIZERS ? rows[optimizer].row : NULL;
}

int zero_optimizer_most(enum kolo_zero_optimizer optimizer)
{
	return rows[optimizer].moments;
}

bool zero_optimizer_has_ratios(enum kolo_zero_optimizer optimizer)
{
	return !rows[optimizer].whole;
}
