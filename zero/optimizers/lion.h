/* Lion (Chen et al. 2023): moves by the sign of a mean of momentum and gradient. */
#ifndef ZERO_OPTIMIZERS_LION_H
#define ZERO_OPTIMIZERS_LION_H

#include "zero/optimizers/element.h"

extern const struct zero_optimizer zero_row_lion;

ZERO_UPDATE(lion)
{
	float c = s->beta1 * m[i] + s->rest1 * g[i];
	/* Without a branch: half of the branches would be predicted wrong. */
	float sign = (float)((c > 0) - (c < 0));

	(void)v, (void)moving;
	p[i] = p[i] * s->keep - s->rate * sign;
	m[i] = s->beta2 * m[i] + s->rest2 * g[i];
}

#endif
