/* What distinguishes an optimizer, besides its update: names, state, defaults, parameters in a
 * config. Each one is in the optimizer's own file, NAME.c. */
#ifndef ZERO_OPTIMIZERS_ROW_H
#define ZERO_OPTIMIZERS_ROW_H

#include "kolo/kolo_zero.h"

#include <stdbool.h>

/* Parameters that a DeepSpeed config may give it (zero/config/keys.c), as bits. */
enum zero_params {
	ZERO_HAS_BETAS = 1,
	ZERO_HAS_EPS = 2,
	ZERO_HAS_MOMENTUM = 4,  /* momentum, dampening, nesterov */
	ZERO_HAS_SUM = 8,       /* lr_decay, initial_accumulator_value */
	ZERO_HAS_ADAMS = 16,    /* adam_w_mode and others of Adam alone */
	ZERO_HAS_BIAS = 32,     /* bias_correction, amsgrad */
	ZERO_HAS_RATIOS = 64,   /* min_coeff, max_coeff, eps_inside_sqrt */
	ZERO_HAS_TORCHS = 128,  /* maximize and others of torch.optim */
	ZERO_HAS_FUSED = 256,   /* those of DeepSpeed's fused version */
	ZERO_HAS_ON_HOST = 512, /* those of DeepSpeed's version for the host */
};

struct zero_optimizer {
	const char *name;                /* like "AdamW"; in configs in any case */
	struct kolo_zero_group defaults; /* torch's, or the paper's */
	struct kolo_zero_group presets;  /* DeepSpeed's, for a config that names the optimizer */
	unsigned params;                 /* enum zero_params values, or-ed */
	const char *note;                /* a remark on configs that name it; NULL: none */
	/* The first moment begins with the group's `initial`, not with 0. */
	bool begins_with_initial;
	/* Only groups with a momentum have a moment. */
	bool moves_with_momentum;
	/* The learning rate of step number `step`, from 1. NULL: the group's lr. */
	double (*rate)(const struct kolo_zero_group *group, long step);
};

/* Returns x to the power n >= 0. torch's Python multiplies n factors; this takes fewer products, so
 * the last bits of a double may differ. */
static inline double zero_power(double x, long n)
{
	double y = 1;

	for (; n > 0; n /= 2, x *= x)
		if (n % 2)
			y *= x;
	return y;
}

#endif
