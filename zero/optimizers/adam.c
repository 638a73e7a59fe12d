/* Properties of AdamW and Adam. */
#include "zero/optimizers/adam.h"

#include "zero/optimizers/row.h"

enum {
	PARAMS = ZERO_HAS_BETAS | ZERO_HAS_EPS | ZERO_HAS_ADAMS | ZERO_HAS_BIAS | ZERO_HAS_TORCHS |
		 ZERO_HAS_FUSED | ZERO_HAS_ON_HOST
};

/* The correction of the first moment's bias is in the rate. */
static double rate(const struct kolo_zero_group *group, long step)
{
	return group->lr / (1 - zero_power(group->beta1, step));
}

const struct zero_optimizer zero_row_adamw = {
	.name = "AdamW",
	.defaults = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2 },
	.presets = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
	.params = PARAMS,
	.rate = rate,
};

const struct zero_optimizer zero_row_adam = {
	.name = "Adam",
	.defaults = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
	.presets = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
	.params = PARAMS,
	.rate = rate,
};
