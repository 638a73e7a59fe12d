/* Describes the update of some elements: their gradients, masters, moments and factors
 * (zero_update_on_device, zero_update_offloaded). */
#include "zero/step/update_work.h"

#include "zero/core/engine.h"
#include "zero/core/tensor.h"
#include "zero/offload/offload.h"

#include <string.h>

/* The members that do not depend on where the elements are. */
static struct kolo_zero_work work_of(const struct kolo_zero *z, int tensor,
				     const struct zero_scalars *u)
{
	struct kolo_zero_work work = {
		.kind = KOLO_ZERO_WORK_UPDATE,
		.factor = u->factor,
		.optimizer = z->config.optimizer,
		.scalars = u->groups[z->tensors[tensor].group],
		.to_type = z->tensors[tensor].type,
	};

	if (u->ratios)
		work.scalars.rate *= (float)u->ratios[tensor];
	return work;
}

struct kolo_zero_work zero_update_on_device(const struct kolo_zero *z, int tensor,
					    struct zero_part part, char *values,
					    const struct zero_scalars *u)
{
	const struct zero_tensor *t = &z->tensors[tensor];
	struct kolo_zero_work work = work_of(z, tensor, u);

	work.n = part.n;
	work.from = zero_at(t->grad, t->grad_type, part.first - t->grad_held.first);
	work.from_type = t->grad_type;
	work.master = zero_master_at(t, part.first);
	for (int m = 0; m < 2; m++)
		work.moment[m] = zero_moment_at(t, m, part.first);
	work.to = values;
	return work;
}

struct kolo_zero_work zero_update_offloaded(const struct kolo_zero *z, int tensor,
					    const struct zero_slice *s,
					    const struct zero_scalars *u)
{
	struct kolo_zero_work work = work_of(z, tensor, u);

	work.n = s->part.n;
	work.from = s->grad;
	work.from_type = z->tensors[tensor].offloaded.grad_type;
	work.master = s->master;
	memcpy(work.moment, s->moment, sizeof(work.moment));
	work.to = s->values;
	return work;
}
