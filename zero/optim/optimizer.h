/* What distinguishes the optimizers, besides their loops (kernels.h): names, state, defaults,
 * factors of a step. */
#ifndef ZERO_OPTIM_OPTIMIZER_H
#define ZERO_OPTIM_OPTIMIZER_H

#include "kolo/kolo_zero_device.h"

/* How many moments, each as large as the parameters in float, the optimizer keeps for tensors of
 * this group. */
int zero_optimizer_moments(enum kolo_zero_optimizer optimizer, const struct kolo_zero_group *group);

/* What the first moment begins with; the second with 0. */
float zero_optimizer_initial(enum kolo_zero_optimizer optimizer,
			     const struct kolo_zero_group *group);

/* The group with what its schedule makes of it in step number `step`, from 1. */
struct kolo_zero_group zero_optimizer_scheduled(const struct kolo_zero_group *group, long step);

/* The factors of step number `step`, from 1. Computed in double, as torch does. */
struct kolo_zero_scalars zero_optimizer_scalars(enum kolo_zero_optimizer optimizer,
						const struct kolo_zero_group *group, long step);

/* 0, or KOLO_EINVAL with the field that is wrong. */
int zero_optimizer_check(enum kolo_zero_optimizer optimizer, const struct kolo_zero_group *group,
			 int index);

#endif
