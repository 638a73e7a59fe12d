/* AdamW and Adam, as torch has them. */
#ifndef ZERO_OPTIMIZERS_ADAM_H
#define ZERO_OPTIMIZERS_ADAM_H

#include "zero/optimizers/element.h"

extern const struct zero_optimizer zero_row_adamw;
extern const struct zero_optimizer zero_row_adam;

/* Both moments of an element with gradient g. */
KO_INLINE void zero_adam_moments(float *m, float *v, float g, const struct kolo_zero_scalars *s)
{
	*m = *m * s->beta1 + g * s->rest1;
	*v = *v * s->beta2 + s->rest2 * g * g;
}

ZERO_UPDATE(adamw)
{
	(void)moving;
	zero_adam_moments(&m[i], &v[i], g[i], s);
	p[i] = p[i] * s->keep - s->rate * m[i] / (sqrtf(v[i]) / s->root2 + s->eps);
}

ZERO_UPDATE(adam)
{
	(void)moving;
	zero_adam_moments(&m[i], &v[i], zero_decayed(g[i], p[i], s), s);
	p[i] -= s->rate * m[i] / (sqrtf(v[i]) / s->root2 + s->eps);
}

#endif
