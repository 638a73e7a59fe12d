/* Part of the description of an engine: its buckets. */
#ifndef ZERO_CREATE_BUCKETS_H
#define ZERO_CREATE_BUCKETS_H

#include "zero/core/engine.h"

/* Plans the buckets of reductions and of gathers, and the order of updates, once it is known what
 * is where. Errors: KOLO_ENOMEM. */
int zero_describe_buckets(struct kolo_zero *zero);

#endif
