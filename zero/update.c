/* The update: one pass over gradients, masters and moments that also writes the parameters, wherever each of them is. */
#include "update.h"

#include "away.h"
#include "basics.h"
#include "gather.h"
#include "home.h"
#include "optimizer.h"
#include "server.h"
#include "shards.h"
#include "tensor.h"
#include "work.h"
#include "zero.h"

#include <stdlib.h>
#include <string.h>

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* ---- Optimizer ------------------------------------------------------------------------------------------ */

/* What an update takes along. */
struct update {
	float factor;
	struct kolo_zero_scalars *groups; /* of each group */
	double *ratios;                   /* Lamb: of each tensor, the trust ratio */
	double *sums;                     /* of Lamb's first pass over a tensor; */
	struct zero_part part;            /* and the part that it is over */
};

/* The work of a tensor's update, but for where it is. */
static struct kolo_zero_work work_of(const struct kolo_zero *z, int tensor, const struct update *u)
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

/* Elements of a tensor's part that are at home; values NULL: the masters are these. */
static void place_home(const struct zero_tensor *t, struct zero_part part, char *values,
		       struct kolo_zero_work *work)
{
	work->n = part.n;
	work->from = zero_at(t->grad, t->grad_type, part.first - t->grad_held.first);
	work->from_type = t->grad_type;
	work->master = zero_master_at(t, part.first);
	for (int m = 0; m < 2; m++)
		work->moment[m] = zero_moment_at(t, m, part.first);
	work->to = values;
}

static int update_slice(struct kolo_zero *z, int tensor, const struct zero_slice *s, void *arg)
{
	struct kolo_zero_work work = work_of(z, tensor, arg);

	work.n = s->part.n;
	work.from = s->grad;
	work.from_type = z->tensors[tensor].away.grad_type;
	work.master = s->master;
	memcpy(work.moment, s->moment, sizeof(work.moment));
	work.to = s->values;
	zero_work_run(z->threads, z->kernels, &work);
	return 0;
}

/* What is updated at home, of a shard that is not there: its values come down through buffers. */
static int update_and_fall(struct kolo_zero *z, int tensor, struct zero_part part, const struct update *u)
{
	struct zero_tensor *t = &z->tensors[tensor];
	int rc = 0;

	for (size_t done = 0, n; rc == 0 && done < part.n; done += n) {
		struct zero_part slice = { part.first + done, n = min_size(part.n - done, z->slice) };
		struct kolo_zero_work work = work_of(z, tensor, u);
		char *to = zero_kept_at(t, slice.first), *values;
		uint64_t *ticket;

		if ((rc = zero_staging_take(z, &z->falling, false, &values, &ticket)) < 0)
			return rc;
		place_home(t, slice, values, &work);
		rc = zero_home_work(z, &work);
		if (rc == 0)
			rc = zero_copy_down(z, to, values, slice.n * kolo_type_size(t->type), ticket);
	}
	return rc;
}

static int update_home(struct kolo_zero *z, int tensor, struct zero_part part, const struct update *u)
{
	struct zero_tensor *t = &z->tensors[tensor];
	struct kolo_zero_work work = work_of(z, tensor, u);
	char *values = NULL;

	if (part.n == 0)
		return 0;
	if (z->device && t->sharded && t->shard_place != ZERO_HOME)
		return update_and_fall(z, tensor, part, u);
	if (t->master)
		values = zero_kept_at(t, part.first);
	place_home(t, part, values, &work);
	return zero_home_work(z, &work);
}

/* Work at home goes on beside what is away, where home is a device of its own. */
static int update_part(struct kolo_zero *z, int tensor, struct zero_part part, struct update *u)
{
	const struct zero_tensor *t = &z->tensors[tensor];
	int rc = update_home(z, tensor, zero_part_home(t, part), u);

	return rc == 0 ? zero_away_walk(z, tensor, zero_part_away(t, part), true, update_slice, u) : rc;
}

static int update_piece(struct kolo_zero *z, const struct zero_piece *piece, void *arg)
{
	const struct zero_tensor *t = &z->tensors[piece->tensor];

	return update_part(z, piece->tensor, zero_part_of(t->n, z->nranks, z->rank, piece->first, piece->n),
			   arg);
}

/* ---- Lamb ----------------------------------------------------------------------------------------------- */

static int lamb_slice(struct kolo_zero *z, int tensor, const struct zero_slice *s, void *arg)
{
	const struct update *u = arg;
	struct kolo_zero_work work = work_of(z, tensor, u);

	work.kind = KOLO_ZERO_WORK_LAMB;
	work.n = s->part.n;
	work.from = s->grad;
	work.from_type = z->tensors[tensor].away.grad_type;
	work.master = s->master;
	memcpy(work.moment, s->moment, sizeof(work.moment));
	work.sums = u->sums + 2 * zero_blocks(s->part.first - u->part.first);
	zero_work_run(z->threads, z->kernels, &work);
	return 0;
}

/* The moments of one owner's part of a tensor; adds the squares of parameters and updates to sums[0] and sums[1]. */
static int lamb_part(struct kolo_zero *z, int tensor, struct zero_part part, struct update *u, double *sums)
{
	const struct zero_tensor *t = &z->tensors[tensor];
	struct zero_part away = zero_part_away(t, part), home = zero_part_home(t, part);
	struct kolo_zero_work work = work_of(z, tensor, u);
	double of_part[2] = { 0 };
	int rc = 0;

	u->sums = z->sums;
	u->part = part;
	work.kind = KOLO_ZERO_WORK_LAMB;
	work.sums = z->sums + 2 * zero_blocks(away.n);
	if (home.n) {
		place_home(t, home, NULL, &work);
		rc = zero_home_work(z, &work);
	}
	if (rc == 0)
		rc = zero_away_walk(z, tensor, away, false, lamb_slice, u);
	if (rc == 0)
		rc = zero_home_wait(z);
	for (size_t b = 0; b < zero_blocks(part.n); b++)
		for (int k = 0; k < 2; k++)
			of_part[k] += z->sums[2 * b + (size_t)k];
	sums[0] += of_part[0];
	sums[1] += of_part[1];
	return rc;
}

/* The sums of all tensors over all owners, in the owners' order: own has this rank's, of two for each tensor. */
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

/* Moments of all tensors. Where all is held each owner's part is summed apart, as their owners do elsewhere. */
static int lamb_all(struct kolo_zero *z, struct update *u, double *own, double *total)
{
	int rc = zero_away_begin(z);

	for (int k = 0; rc == 0 && z->config.stage > 0 && k < z->norder; k++)
		rc = lamb_part(z, z->order[k], z->tensors[z->order[k]].held, u, &own[2 * z->order[k]]);
	for (int i = 0; z->config.stage == 0 && i < z->ntensors; i++)
		for (int r = 0; rc == 0 && r < z->nranks; r++)
			if (z->tensors[i].trained && z->tensors[i].held.n)
				rc = lamb_part(z, i, zero_owned(z->tensors[i].n, z->nranks, r), u,
					       &total[2 * i]);
	return rc == 0 ? zero_away_end(z) : rc;
}

/* Trust ratios of all tensors, ||p|| / ||update||; 1 where one of them is 0. */
static int lamb_ratios(struct kolo_zero *z, struct update *u)
{
	size_t n = 2 * (size_t)z->ntensors;
	double *own = calloc(n * (size_t)(z->nranks + 2), sizeof(*own)), *ratios = u->ratios;
	int rc;

	if (!own)
		return kolo_error_set(KOLO_ENOMEM, "rank %d: norms of %d tensors: out of memory", z->rank,
				      z->ntensors);
	u->ratios = NULL;
	rc = lamb_all(z, u, own, own + n);
	u->ratios = ratios;
	if (rc == 0 && z->config.stage > 0)
		rc = add_over_owners(z, own, own + 2 * n, own + n);
	for (int i = 0; i < z->ntensors; i++) {
		double p = __builtin_sqrt(own[n + 2 * (size_t)i]);
		double update = __builtin_sqrt(own[n + 2 * (size_t)i + 1]);

		ratios[i] = p > 0 && update > 0 ? p / update : 1;
	}
	free(own);
	return rc;
}

/* ---- All ------------------------------------------------------------------------------------------------ */

static int update_sharded(struct kolo_zero *z, int tensor, struct update *u)
{
	int rc = zero_shard_begin(z, tensor);

	if (rc == 0)
		rc = update_part(z, tensor, z->tensors[tensor].held, u);
	return rc == 0 ? zero_shard_end(z, tensor) : rc;
}

static int update_all(struct kolo_zero *z, struct update *u)
{
	int rc = u->ratios ? lamb_ratios(z, u) : 0;

	if (rc == 0)
		rc = zero_shelf_forget(z);
	if (rc == 0)
		rc = zero_away_begin(z);
	for (int i = 0; rc == 0 && z->config.stage == 0 && i < z->ntensors; i++)
		if (z->tensors[i].trained)
			rc = update_part(z, i, z->tensors[i].held, u);
	/* The others are in the plan of gathers. */
	for (int k = 0; rc == 0 && k < z->norder && z->tensors[z->order[k]].sharded; k++)
		rc = update_sharded(z, z->order[k], u);
	if (rc == 0)
		rc = zero_gather_updated(z, update_piece, u);
	if (rc == 0)
		rc = zero_away_end(z);
	if (rc == 0)
		rc = zero_home_wait(z);
	if (rc == 0 && z->config.parameter_server)
		rc = zero_server_share(z);
	return rc;
}

int zero_update(struct kolo_zero *z, float factor)
{
	bool lamb = z->config.optimizer == KOLO_ZERO_LAMB;
	struct update u = { .factor = factor };
	int rc = KOLO_ENOMEM;

	u.groups = calloc((size_t)z->config.ngroups, sizeof(*u.groups));
	u.ratios = lamb ? calloc((size_t)z->ntensors, sizeof(*u.ratios)) : NULL;
	if (!u.groups || (lamb && !u.ratios)) {
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
