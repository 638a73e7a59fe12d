/* Looks up a tensor (zero_tensor_get), and divides its parts into offloaded ones and those on the
 * device (zero_part_offloaded). */
#include "zero/core/tensor.h"

#include "zero/base/basics.h"
#include "zero/core/guard.h"

struct zero_tensor *zero_tensor_get(struct kolo_zero *z, int tensor, const char *what)
{
	if (tensor >= 0 && tensor < z->ntensors)
		return &z->tensors[tensor];
	zero_misuse(z, "%s of tensor %d; the model has 0 to %d", what, tensor, z->ntensors - 1);
	return NULL;
}

struct zero_part zero_part_offloaded(const struct zero_tensor *t, struct zero_part part)
{
	return zero_part_meet(part, (struct zero_part){ t->held.first, t->offloaded.n });
}

struct zero_part zero_part_on_device(const struct zero_tensor *t, struct zero_part part)
{
	return zero_part_meet(part, (struct zero_part){ t->held.first + t->offloaded.n,
							t->held.n - t->offloaded.n });
}

float *zero_master_at(const struct zero_tensor *t, size_t first)
{
	if (t->master)
		return t->master + (first - t->held.first - t->offloaded.n);
	if (t->sharded)
		return (float *)(void *)t->shard + (first - t->own.first);
	return (float *)(void *)t->param + first;
}

float *zero_moment_at(const struct zero_tensor *t, int moment, size_t first)
{
	return t->moment[moment] ? t->moment[moment] + (first - t->held.first - t->offloaded.n)
				 : NULL;
}

size_t zero_bucket_elements(const struct kolo_zero *z, const struct zero_plan *plan,
			    const struct zero_bucket *b)
{
	size_t n = 0;

	for (int p = b->first; p < b->first + b->npieces; p++) {
		const struct zero_piece *piece = &plan->pieces[p];

		for (int r = 0; r < z->nranks; r++)
			n += zero_part_of(z->tensors[piece->tensor].n, z->nranks, r, piece->first,
					  piece->n)
				     .n;
	}
	return n;
}
