/* Properties of Lion. */
#include "zero/optimizers/lion.h"

#include "zero/optimizers/row.h"

const struct zero_optimizer zero_row_lion = {
	.name = "Lion",
	.defaults = { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99 },
	.presets = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999 },
	.params = ZERO_HAS_BETAS | ZERO_HAS_FUSED | ZERO_HAS_ON_HOST,
};
