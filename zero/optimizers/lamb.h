/* Lamb (You et al. 2020): Adam with a trust ratio ||p|| / ||u|| for each tensor. A first pass
 * computes the moments and both norms (KOLO_ZERO_WORK_LAMB). Then s->rate has the ratio in it. */
#ifndef ZERO_OPTIMIZERS_LAMB_H
#define ZERO_OPTIMIZERS_LAMB_H

#include "zero/optimizers/adam.h"

extern const struct zero_optimizer zero_row_lamb;

/* u: the update before the trust ratio. The moments are those of this step already. */
KO_INLINE float zero_lamb_step(float p, float m, float v, const struct kolo_zero_scalars *s)
{
	return m / s->bias1 / (sqrtf(v) / s->root2 + s->eps) + s->decay * p;
}

ZERO_UPDATE(lamb)
{
	(void)g, (void)moving;
	p[i] -= s->rate * zero_lamb_step(p[i], m[i], v[i], s);
}

#endif
