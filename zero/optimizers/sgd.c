/* Properties of SGD. */
#include "zero/optimizers/sgd.h"

#include "zero/optimizers/row.h"

const struct zero_optimizer zero_row_sgd = {
	.name = "SGD",
	.defaults = { .lr = 1e-3 },
	.presets = { .lr = 1e-3 },
	.params = ZERO_HAS_MOMENTUM | ZERO_HAS_TORCHS,
	.moves_with_momentum = true,
};
