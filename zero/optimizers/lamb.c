/* Properties of Lamb. */
#include "zero/optimizers/lamb.h"

#include "zero/optimizers/row.h"

const struct zero_optimizer zero_row_lamb = {
	.name = "Lamb",
	.defaults = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .weight_decay = 1e-2 },
	.presets = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
	.params = ZERO_HAS_BETAS | ZERO_HAS_EPS | ZERO_HAS_BIAS | ZERO_HAS_RATIOS,
	.note = "trust ratios have no bounds; DeepSpeed keeps them from 0.01 to 10",
};
