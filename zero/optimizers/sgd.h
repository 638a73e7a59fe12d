/* SGD as torch has it: with momentum, dampening, nesterov. */
#ifndef ZERO_OPTIMIZERS_SGD_H
#define ZERO_OPTIMIZERS_SGD_H

#include "zero/optimizers/element.h"

extern const struct zero_optimizer zero_row_sgd;

ZERO_UPDATE(sgd)
{
	float d = zero_decayed(g[i], p[i], s);

	(void)v;
	if (moving) {
		m[i] = s->first ? d : m[i] * s->momentum + s->rest * d;
		d = s->nesterov ? d + s->momentum * m[i] : m[i];
	}
	p[i] -= s->rate * d;
}

#endif
