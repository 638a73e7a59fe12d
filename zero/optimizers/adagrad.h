/* Adagrad as torch has it. Its moment is the sum of squares. */
#ifndef ZERO_OPTIMIZERS_ADAGRAD_H
#define ZERO_OPTIMIZERS_ADAGRAD_H

#include "zero/optimizers/element.h"

extern const struct zero_optimizer zero_row_adagrad;

ZERO_UPDATE(adagrad)
{
	float d = zero_decayed(g[i], p[i], s);

	(void)v, (void)moving;
	m[i] += d * d;
	p[i] -= s->rate * d / (sqrtf(m[i]) + s->eps);
}

#endif
