/* The update (zero_update): one pass over gradients, masters and moments, wherever they are. It
 * writes the parameters too. */
#include "zero/step/update.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/tensor.h"
#include "zero/offload/compute.h"
#include "zero/offload/offload.h"
#include "zero/offload/shards.h"
#include "zero/optim/optimizer.h"
#include "zero/optim/work.h"
#include "zero/optimizers/list.h"
#include "zero/step/gather.h"
#include "zero/step/lamb.h"
#include "zero/step/server.h"
#include "zero/step/update_work.h"

#include <stdlib.h>

static int update_slice(struct kolo_zero *z, int tensor, const struct zero_slice *s, void *arg)
{
	struct kolo_zero_work work = zero_update_offloaded(z, tensor, s, arg);

	zero_work_run(z->threads, z->kernels, &work);
	return 0;
}

/* Updates a part whose state is on the device and whose shard is offloaded. The new values are
 * downloaded through buffers. */
static int update_and_download(struct kolo_zero *z, int tensor, struct zero_part part,
			       const struct zero_scalars *u)
{
	struct zero_tensor *t = &z->tensors[tensor];
	int rc = 0;

	for (size_t done = 0, n; rc == 0 && done < part.n; done += n) {
		struct zero_part slice = { part.first + done,
					   n = zero_min(part.n - done, z->slice) };
		struct kolo_zero_work work;
		char *to = zero_kept_at(t, slice.first), *values;
		uint64_t *ticket;

		if ((rc = zero_staging_take(z, &z->downloads, false, &values, &ticket)) < 0)
			return rc;
		work = zero_update_on_device(z, tensor, slice, values, u);
		rc = zero_compute(z, &work);
		if (rc == 0)
			rc = zero_download(z, to, values, slice.n * kolo_type_size(t->type),
					   ticket);
	}
	return rc;
}

static int update_on_device(struct kolo_zero *z, int tensor, struct zero_part part,
			    const struct zero_scalars *u)
{
	struct zero_tensor *t = &z->tensors[tensor];
	struct kolo_zero_work work;
	char *values = NULL;

	if (part.n == 0)
		return 0;
	if (z->device && t->sharded && t->shard_place != ZERO_ON_DEVICE)
		return update_and_download(z, tensor, part, u);
	if (t->master)
		values = zero_kept_at(t, part.first);
	work = zero_update_on_device(z, tensor, part, values, u);
	return zero_compute(z, &work);
}

/* A GPU updates the first part while the host updates the second. */
static int update_part(struct kolo_zero *z, int tensor, struct zero_part part,
		       struct zero_scalars *u)
{
	const struct zero_tensor *t = &z->tensors[tensor];
	int rc = update_on_device(z, tensor, zero_part_on_device(t, part), u);

	return rc == 0 ? zero_offload_walk(z, tensor, zero_part_offloaded(t, part), true,
					   update_slice, u)
		       : rc;
}

static int update_piece(struct kolo_zero *z, const struct zero_piece *piece, void *arg)
{
	const struct zero_tensor *t = &z->tensors[piece->tensor];

	return update_part(z, piece->tensor,
			   zero_part_of(t->n, z->nranks, z->rank, piece->first, piece->n), arg);
}

/* ---- All tensors ----------------------------------------------------------------------------- */

static int update_sharded(struct kolo_zero *z, int tensor, struct zero_scalars *u)
{
	int rc = zero_shard_begin(z, tensor);

	if (rc == 0)
		rc = update_part(z, tensor, z->tensors[tensor].held, u);
	return rc == 0 ? zero_shard_end(z, tensor) : rc;
}

static int update_all(struct kolo_zero *z, struct zero_scalars *u)
{
	int rc = u->ratios ? zero_lamb_ratios(z, u) : 0;

	if (rc == 0)
		rc = zero_param_buffers_forget(z);
	if (rc == 0)
		rc = zero_offload_begin(z);
	for (int i = 0; rc == 0 && z->config.stage == 0 && i < z->ntensors; i++)
		if (z->tensors[i].trained)
			rc = update_part(z, i, z->tensors[i].held, u);
	/* The other tensors are in the plan of gathers. */
	for (int k = 0; rc == 0 && k < z->norder && z->tensors[z->order[k]].sharded; k++)
		rc = update_sharded(z, z->order[k], u);
	if (rc == 0)
		rc = zero_gather_updated(z, update_piece, u);
	if (rc == 0)
		rc = zero_offload_end(z);
	if (rc == 0)
		rc = zero_compute_wait(z);
	if (rc == 0 && z->config.parameter_server)
		rc = zero_server_share(z);
	return rc;
}

int zero_update(struct kolo_zero *z, float factor)
{
	bool ratios = zero_optimizer_has_ratios(z->config.optimizer);
	struct zero_scalars u = { .factor = factor };
	int rc = KOLO_ENOMEM;

	u.groups = calloc((size_t)z->config.ngroups, sizeof(*u.groups));
	u.ratios = ratios ? calloc((size_t)z->ntensors, sizeof(*u.ratios)) : NULL;
	if (!u.groups || (ratios && !u.ratios)) {
		kolo_error_set(rc, "rank %d: an update of %d groups: out of memory", z->rank,
			       z->config.ngroups);
	} else {
		for (int i = 0; i < z->config.ngroups; i++) {
			struct kolo_zero_group g =
				zero_optimizer_scheduled(&z->config.groups[i], z->step + 1);

			u.groups[i] = zero_optimizer_scalars(z->config.optimizer, &g, z->step + 1);
		}
		rc = update_all(z, &u);
	}
	free(u.groups);
	free(u.ratios);
	return rc;
}
