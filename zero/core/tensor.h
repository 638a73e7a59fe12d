/* A tensor of the engine: its elements, on the device and offloaded. */
#ifndef ZERO_CORE_TENSOR_H
#define ZERO_CORE_TENSOR_H

#include "zero/core/engine.h"

/* The tensor of this number. NULL with the error text of `what` if there is none. */
struct zero_tensor *zero_tensor_get(struct kolo_zero *zero, int tensor, const char *what);

/* The elements of a part whose state is offloaded, and those whose state is on the device. The
 * former come first. */
struct zero_part zero_part_offloaded(const struct zero_tensor *t, struct zero_part part);
struct zero_part zero_part_on_device(const struct zero_tensor *t, struct zero_part part);

/* The floats on the device that element `first` of a trained tensor is updated in. */
float *zero_master_at(const struct zero_tensor *t, size_t first);
/* Its moment on the device. NULL if it has none of that number. */
float *zero_moment_at(const struct zero_tensor *t, int moment, size_t first);

/* Elements in a bucket, of all ranks, without padding. */
size_t zero_bucket_elements(const struct kolo_zero *zero, const struct zero_plan *plan,
			    const struct zero_bucket *bucket);

/* Does each rank add up the gradients of micro-steps before they are reduced? Or what of the sums
 * over ranks it owns, after that? */
static inline bool zero_sums_steps(const struct kolo_zero *z)
{
	return z->config.stage < 2 && z->config.accumulation > 1;
}

static inline bool zero_sums_reduced(const struct kolo_zero *z)
{
	return z->config.stage >= 2 && z->config.accumulation > 1;
}

/* The n-th element at `base`, of a type. */
static inline char *zero_at(char *base, enum kolo_type type, size_t n)
{
	return base + n * kolo_type_size(type);
}

/* The values of elements from `first` on, which are in memory: in the shard, or among all. */
static inline char *zero_kept_at(const struct zero_tensor *t, size_t first)
{
	return t->sharded ? zero_at(t->shard, t->type, first - t->own.first)
			  : zero_at(t->param, t->type, first);
}

#endif
