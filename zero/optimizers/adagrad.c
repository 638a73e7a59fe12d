/* Properties of Adagrad. */
#include "zero/optimizers/adagrad.h"

#include "zero/optimizers/row.h"

static double rate(const struct kolo_zero_group *group, long step)
{
	return group->lr / (1 + (double)(step - 1) * group->lr_decay);
}

const struct zero_optimizer zero_row_adagrad = {
	.name = "Adagrad",
	.defaults = { .lr = 1e-2, .eps = 1e-10 },
	.presets = { .lr = 1e-2, .eps = 1e-10 },
	.params = ZERO_HAS_EPS | ZERO_HAS_SUM | ZERO_HAS_TORCHS | ZERO_HAS_ON_HOST,
	.begins_with_initial = true,
	.rate = rate,
};
