/* Part of the description of an engine: its buckets. */
#ifndef ZERO_CREATE_BUCKETS_H
#define ZERO_CREATE_BUCKETS_H

#include "zero/core/engine.h"

/* Are gradients of several micro-steps summed after the reduction? */
static inline bool zero_sums_reduced(const struct kolo_zero *z)
{
	return z->config.stage >= 2 && z->config.accumulation > 1;
}

/* Plans the buckets of reductions and of gathers, and the order of updates, once it is known what
 * is where. Errors: KOLO_ENOMEM. */
int zero_describe_buckets(struct kolo_zero *zero);

#endif
