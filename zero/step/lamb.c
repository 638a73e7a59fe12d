/* Lamb's first pass (zero_lamb_ratios). Squares of parameters and updates are summed in double,
 * block by block. Each owner's part is summed by itself, and the parts are added in the order of
 * ranks. So all stages give the same bits. */
#include "zero/step/lamb.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/tensor.h"
#include "zero/offload/compute.h"
#include "zero/offload/offload.h"
#include "zero/optim/work.h"
#include "zero/step/update_work.h"

#include <stdlib.h>

/* One pass over elements of a tensor. */
struct pass {
	const struct zero_scalars *update;
	struct zero_part part;
	double *sums; /* two for each block of part */
};

static int lamb_slice(struct kolo_zero *z, int tensor, const struct zero_slice *s, void *arg)
{
	const struct pass *pass = arg;
	struct kolo_zero_work work = zero_update_offloaded(z, tensor, s, pass->update);

	work.kind = KOLO_ZERO_WORK_LAMB;
	work.sums = pass->sums + 2 * zero_blocks(s->part.first - pass->part.first);
	zero_work_run(z->threads, z->kernels, &work);
	return 0;
}

static int lamb_on_device(struct kolo_zero *z, int tensor, struct zero_part part,
			  const struct zero_scalars *u, double *sums)
{
	struct kolo_zero_work work;

	if (part.n == 0)
		return 0;
	work = zero_update_on_device(z, tensor, part, NULL, u);
	work.kind = KOLO_ZERO_WORK_LAMB;
	work.sums = sums;
	return zero_compute(z, &work);
}

/* Updates the moments of one owner's part of a tensor. Adds the squares of parameters to sums[0]
 * and those of updates to sums[1]. */
static int lamb_part(struct kolo_zero *z, int tensor, struct zero_part part,
		     const struct zero_scalars *u, double *sums)
{
	const struct zero_tensor *t = &z->tensors[tensor];
	struct zero_part offloaded = zero_part_offloaded(t, part);
	struct pass pass = { u, part, z->sums };
	double of_part[2] = { 0 };
	int rc = lamb_on_device(z, tensor, zero_part_on_device(t, part), u,
				z->sums + 2 * zero_blocks(offloaded.n));

	if (rc == 0)
		rc = zero_offload_walk(z, tensor, offloaded, false, lamb_slice, &pass);
	if (rc == 0)
		rc = zero_compute_wait(z);
	for (size_t b = 0; b < zero_blocks(part.n); b++)
		for (int k = 0; k < 2; k++)
			of_part[k] += z->sums[2 * b + (size_t)k];
	sums[0] += of_part[0];
	sums[1] += of_part[1];
	return rc;
}

/* Adds up the sums of all owners, in their order. own: this rank's sums, two for each tensor. */
static int add_over_owners(struct kolo_zero *z, double *own, double *all, double *total)
{
	size_t n = 2 * (size_t)z->ntensors;
	int rc = kolo_all_gather(z->control, own, all, n, KOLO_F64, NULL);

	for (size_t r = 0; rc == 0 && r < (size_t)z->nranks; r++)
		for (size_t i = 0; i < n; i++)
			total[i] += all[r * n + i];
	z->traffic.control_bytes += (uint64_t)(z->nranks - 1) * n * sizeof(double);
	return rc;
}

/* Updates the moments of all tensors. At stage 0 this rank sums each owner's part by itself, as the
 * owners do at other stages. */
static int lamb_all(struct kolo_zero *z, const struct zero_scalars *u, double *own, double *total)
{
	int rc = zero_offload_begin(z);

	for (int k = 0; rc == 0 && z->config.stage > 0 && k < z->norder; k++)
		rc = lamb_part(z, z->order[k], z->tensors[z->order[k]].held, u,
			       &own[2 * z->order[k]]);
	for (int i = 0; z->config.stage == 0 && i < z->ntensors; i++)
		for (int r = 0; rc == 0 && r < z->nranks; r++)
			if (z->tensors[i].trained && z->tensors[i].held.n)
				rc = lamb_part(z, i, zero_owned(z->tensors[i].n, z->nranks, r), u,
					       &total[2 * i]);
	return rc == 0 ? zero_offload_end(z) : rc;
}

int zero_lamb_ratios(struct kolo_zero *z, struct zero_scalars *u)
{
	size_t n = 2 * (size_t)z->ntensors;
	double *own = calloc(n * (size_t)(z->nranks + 2), sizeof(*own));
	struct zero_scalars without = { .factor = u->factor, .groups = u->groups };
	int rc;

	if (!own)
		return kolo_error_set(KOLO_ENOMEM, "rank %d: norms of %d tensors: out of memory",
				      z->rank, z->ntensors);
	rc = lamb_all(z, &without, own, own + n);
	if (rc == 0 && z->config.stage > 0)
		rc = add_over_owners(z, own, own + 2 * n, own + n);
	for (int i = 0; i < z->ntensors; i++) {
		double p = __builtin_sqrt(own[n + 2 * (size_t)i]);
		double update = __builtin_sqrt(own[n + 2 * (size_t)i + 1]);

		u->ratios[i] = p > 0 && update > 0 ? p / update : 1;
	}
	free(own);
	return rc;
}
