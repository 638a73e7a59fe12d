/* Values that the program reads and writes: tensors as floats (kolo_zero_get, kolo_zero_set),
 * learning rates and the loss scale. */
#include "zero/step/values.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/guard.h"
#include "zero/core/tensor.h"
#include "zero/offload/offload.h"
#include "zero/offload/shards.h"
#include "zero/optim/optimizer.h"
#include "zero/optim/schedule.h"
#include "zero/optimizers/list.h"
#include "zero/step/gather.h"

#include <stdint.h>
#include <stdlib.h>

/* Refuses a call that is not between updates, and one while the tensor is in use. Waits for all
 * gathers. */
static int check_at_rest(struct kolo_zero *z, int tensor)
{
	int rc = zero_check_between_updates(z, "values of a tensor");
	const struct zero_tensor *t = rc == 0 ? zero_tensor_get(z, tensor, "values") : NULL;

	if (rc < 0 || !t)
		return rc < 0 ? rc : KOLO_EINVAL;
	if (t->uses)
		return kolo_error_set(
			KOLO_EINVAL,
			"rank %d: values of tensor '%s', which is in use: release it first",
			z->rank, t->name);
	return zero_failed(z, zero_gather_finish_all(z));
}

int kolo_zero_set_lr(struct kolo_zero *z, int group, double lr)
{
	int rc = zero_check_between_updates(z, "a learning rate");
	struct kolo_zero_group changed;

	if (rc < 0)
		return rc;
	if (group < 0 || group >= z->config.ngroups)
		return kolo_error_set(KOLO_EINVAL, "learning rate of group %d; there are %d groups",
				      group, z->config.ngroups);
	changed = z->config.groups[group];
	if (!zero_schedule_takes_lr(&changed.schedule))
		return kolo_error_set(
			KOLO_EINVAL,
			"learning rate of group %d, which its schedule, %s, does not look at",
			group, kolo_zero_schedule_name(changed.schedule.type));
	changed.lr = lr;
	if ((rc = zero_optimizer_check(z->config.optimizer, &changed, group)) == 0)
		((struct kolo_zero_group *)z->config.groups)[group] = changed;
	return rc;
}

int kolo_zero_set_loss_scale(struct kolo_zero *z, double loss_scale)
{
	int rc = zero_check_between_updates(z, "a loss scale");

	if (rc == 0 && !(loss_scale > 0 && loss_scale < __builtin_inf()))
		return kolo_error_set(KOLO_EINVAL,
				      "the loss scale is %g, and must be finite and above 0",
				      loss_scale);
	if (rc == 0)
		z->scaler.scale = loss_scale;
	return rc;
}

/* ---- What training has come to --------------------------------------------------------------- */

double kolo_zero_loss_scale(const struct kolo_zero *z)
{
	return z->scaler.scale;
}

int kolo_zero_lr_get(const struct kolo_zero *z, int group, double *lr, double *momentum)
{
	struct kolo_zero_group g;

	if (!z || group < 0 || group >= z->config.ngroups)
		return kolo_error_set(KOLO_EINVAL, "learning rate of group %d; there are %d groups",
				      group, z ? z->config.ngroups : 0);
	g = zero_optimizer_scheduled(&z->config.groups[group], z->step + 1);
	if (lr)
		*lr = g.lr;
	if (momentum)
		*momentum = zero_optimizer_row(z->config.optimizer)->moves_with_momentum
				    ? g.momentum
				    : g.beta1;
	return 0;
}

void kolo_zero_progress_get(const struct kolo_zero *z, struct kolo_zero_progress *out)
{
	*out = (struct kolo_zero_progress){
		.step = z->step,
		.skipped = z->skipped,
		.samples = z->total_samples,
		.loss_scale = z->scaler.scale,
		.attempts = z->attempts,
	};
}

void kolo_zero_times_get(const struct kolo_zero *z, struct kolo_zero_times *out)
{
	*out = z->times;
}

/* For handlers of signals: it only reads. */
const char *kolo_zero_tensor_at(const struct kolo_zero *z, const void *address, int *tensor)
{
	for (int i = 0; z && i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];
		const char *base = t->sharded ? t->region.base : t->param;
		uintptr_t at = (uintptr_t)address - (uintptr_t)base;

		if (!base || at >= t->n * kolo_type_size(t->type))
			continue;
		if (tensor)
			*tensor = i;
		return t->name;
	}
	return NULL;
}

/* ---- Values of tensors ----------------------------------------------------------------------- */

enum { STEP = 4096 };

/* Writes values of a tensor from floats. Of a sharded tensor these are its own part. */
static int put_floats(struct kolo_zero *z, int tensor, struct zero_part part, const float *from)
{
	enum kolo_type type = z->tensors[tensor].type;
	float values[STEP];
	int rc = 0;

	for (size_t done = 0, n; rc == 0 && done < part.n; done += n) {
		n = zero_min(part.n - done, STEP);
		kolo_cast(from + done, KOLO_F32, values, type, n, 1);
		rc = zero_values_put(z, tensor, (struct zero_part){ part.first + done, n }, values);
	}
	return rc;
}

static int values_as_floats(struct kolo_zero *z, int tensor, struct zero_part part, float *out)
{
	enum kolo_type type = z->tensors[tensor].type;
	float values[STEP];
	int rc = 0;

	for (size_t done = 0, n; rc == 0 && done < part.n; done += n) {
		n = zero_min(part.n - done, STEP);
		rc = zero_values_get(z, tensor, (struct zero_part){ part.first + done, n }, values);
		kolo_cast(values, type, out + done, KOLO_F32, n, 1);
	}
	return rc;
}

static int set_values(struct kolo_zero *z, int tensor, struct zero_part all, const float *values)
{
	struct zero_tensor *t = &z->tensors[tensor];
	struct zero_part part = t->sharded ? zero_part_meet(all, t->own) : all;
	int rc = part.n ? zero_param_buffers_forget(z) : 0;

	if (rc == 0 && part.n)
		rc = put_floats(z, tensor, part, values + (part.first - all.first));
	part = zero_part_meet(all, t->held);
	if (rc == 0 && part.n)
		rc = zero_state_put(z, t, 0, part, values + (part.first - all.first));
	return rc;
}

int kolo_zero_set(struct kolo_zero *z, int tensor, size_t first, size_t n, const float *values)
{
	int rc = check_at_rest(z, tensor);
	struct zero_part all = { first, n };
	struct zero_tensor *t;

	if (rc < 0)
		return rc;
	t = &z->tensors[tensor];
	if (first > t->n || n > t->n - first || (n && !values))
		return kolo_error_set(
			KOLO_EINVAL,
			"rank %d: values for elements [%zu, %zu) of tensor '%s', which has %zu%s",
			z->rank, first, first + n, t->name, t->n, values ? "" : ": NULL");
	return zero_failed(z, set_values(z, tensor, all, values));
}

/* Reads this rank's own part of a tensor as floats. */
static int own_values(struct kolo_zero *z, int tensor, float *out)
{
	const struct zero_tensor *t = &z->tensors[tensor];

	return t->trained && t->held.n ? zero_state_get(z, t, 0, t->own, out)
				       : values_as_floats(z, tensor, t->own, out);
}

/* Gathers the own parts. Bytes sent here are not counted as training's. */
static int gather_values(struct kolo_zero *z, int tensor, float *out)
{
	const struct zero_tensor *t = &z->tensors[tensor];
	struct kolo_stats before, after;
	int rc = kolo_comm_stats(z->data, &before);

	for (int r = 0; r < z->nranks; r++)
		z->gatherer.counts[r] = zero_owned(t->n, z->nranks, r).n;
	if (rc == 0)
		rc = own_values(z, tensor, out + t->own.first);
	if (rc == 0)
		rc = kolo_all_gather_v(z->data, out + t->own.first, out, z->gatherer.counts,
				       KOLO_F32, NULL);
	if (rc == 0)
		rc = kolo_comm_stats(z->data, &after);
	if (rc == 0)
		z->sent_before += after.sent_bytes - before.sent_bytes;
	return rc;
}

int kolo_zero_get(struct kolo_zero *z, int tensor, float *out)
{
	int rc = check_at_rest(z, tensor);
	struct zero_tensor *t;

	if (rc < 0)
		return rc;
	t = &z->tensors[tensor];
	if (!out)
		return kolo_error_set(KOLO_EINVAL, "rank %d: values of tensor '%s' into NULL",
				      z->rank, t->name);
	if (z->config.stage > 0 && (t->sharded || (t->trained && t->type != KOLO_F32)))
		return zero_failed(z, gather_values(z, tensor, out));
	if (t->master)
		return zero_failed(z, zero_state_get(z, t, 0, (struct zero_part){ 0, t->n }, out));
	return zero_failed(z, values_as_floats(z, tensor, (struct zero_part){ 0, t->n }, out));
}

int zero_values_from_masters(struct kolo_zero *z, int tensor, struct zero_part part)
{
	enum { MANY = 64 << 10 };
	const struct zero_tensor *t = &z->tensors[tensor];
	float *floats = t->master || t->offloaded.n ? malloc(2 * MANY * sizeof(*floats)) : NULL;
	int rc = 0;

	/* The value is its own master. */
	if (!t->master && !t->offloaded.n)
		return 0;
	if (!floats)
		return kolo_error_set(KOLO_ENOMEM, "values of tensor '%s': out of memory", t->name);
	for (size_t done = 0, n; rc == 0 && done < part.n; done += n) {
		struct zero_part some = { part.first + done, 0 };

		n = some.n = zero_min(part.n - done, MANY);
		rc = zero_state_get(z, t, 0, some, floats);
		if (rc == 0)
			rc = kolo_cast(floats, KOLO_F32, floats + MANY, t->type, n, 1);
		if (rc == 0)
			rc = zero_values_put(z, tensor, some, floats + MANY);
	}
	free(floats);
	return rc;
}
