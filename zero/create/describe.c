/* Describes an engine (zero_describe): which rank has what part of each tensor, where that is, and
 * how much memory it takes. buckets.c has in which buckets it is sent.
 *
 * It asks no other rank, and makes nothing but lists. A plan is such a description. An engine
 * begins with one. */
#include "zero/create/describe.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/tensor.h"
#include "zero/create/buckets.h"
#include "zero/optim/kernels.h"
#include "zero/optim/optimizer.h"
#include "zero/optim/work.h"
#include "zero/optimizers/list.h"

#include <stdlib.h>
#include <string.h>

/* ---- Tensors --------------------------------------------------------------------------------- */

static size_t count_elements(const struct kolo_zero_tensor *t)
{
	size_t n = 1;

	for (int d = 0; d < t->ndims; d++)
		n *= t->shape[d];
	return n;
}

static struct zero_division division_of(const struct kolo_zero_tensor *from, size_t n)
{
	const struct kolo_zero_division *d = from->division;
	struct zero_division out = { .n = n, .run = n, .parts = 1 };

	memcpy(out.shape, from->shape, sizeof(out.shape));
	if (!d)
		return out;
	out.parts = (size_t)d->parts;
	out.part = (size_t)d->part;
	out.n *= out.parts;
	out.shape[d->dim] *= out.parts;
	out.run = from->shape[d->dim] / (size_t)(d->fused ? d->fused : 1);
	for (int i = d->dim + 1; i < from->ndims; i++)
		out.run *= from->shape[i];
	return out;
}

static int init_tensor(struct kolo_zero *z, struct zero_tensor *t,
		       const struct kolo_zero_tensor *from)
{
	t->name = malloc(strlen(from->name) + 1);
	if (!t->name)
		return kolo_error_set(KOLO_ENOMEM, "name of tensor '%s': out of memory",
				      from->name);
	strcpy(t->name, from->name);
	t->type = from->type;
	t->given_type = from->gradient_type ? from->gradient_type : from->type;
	t->ndims = from->ndims;
	memcpy(t->shape, from->shape, sizeof(t->shape));
	t->n = count_elements(from);
	t->whole = division_of(from, t->n);
	t->chunk = zero_chunk(t->n, z->nranks);
	t->own = zero_owned(t->n, z->nranks, z->rank);
	t->group = from->group;
	t->trained = !from->frozen;
	t->counted = !from->replicated;
	t->tied = from->tied;
	t->micros = z->config.micros > 1 && !from->summed ? z->config.micros : 1;
	t->sharded = z->config.stage == 3 && t->n > z->config.persistence;
	if (t->sharded)
		t->region.len = zero_whole_pages(t->n * kolo_type_size(t->type));
	if (z->config.stage < 3 && from->data && !z->device) {
		t->param = from->data;
		t->in_user = true;
		z->user_bytes += t->n * kolo_type_size(t->type);
	}
	return 0;
}

static int init_tensors(struct kolo_zero *z, const struct kolo_zero_tensor *from, int n)
{
	int rc = 0;

	z->tensors = calloc((size_t)n, sizeof(*z->tensors));
	z->order = calloc((size_t)n, sizeof(*z->order));
	if (!z->tensors || !z->order)
		return kolo_error_set(KOLO_ENOMEM, "%d tensors: out of memory", n);
	z->ntensors = n;
	for (int i = 0; rc == 0 && i < n; i++)
		rc = init_tensor(z, &z->tensors[i], &from[i]);
	return rc;
}

/* ---- What is where --------------------------------------------------------------------------- */

/* Decides where state and shards are. Without a device the model computes in host memory, and
 * nothing is offloaded to it. */
static enum zero_place place_of(const struct kolo_zero *z, const struct kolo_zero_offload *o)
{
	return o->place == KOLO_ZERO_ON_NVME                ? ZERO_IN_FILES
	       : o->place == KOLO_ZERO_ON_HOST && z->device ? ZERO_ON_HOST
							    : ZERO_ON_DEVICE;
}

/* Decides for which parts of a trained tensor this rank has optimizer state and gradients. */
static void decide_parts(const struct kolo_zero *z, struct zero_tensor *t)
{
	const struct kolo_zero_config *c = &z->config;
	struct zero_part all = { 0, t->n }, none = { 0, 0 };

	t->held = c->stage > 0 ? t->own : c->parameter_server && z->rank > 0 ? none : all;
	t->held_room = c->stage > 0 ? t->chunk : t->held.n;
	t->grad_held = t->held;
	t->grad_room = t->held_room;
	t->grad_type = c->accumulation > 1 ? KOLO_F32 : t->given_type;
	if (zero_sums_steps(z)) { /* this rank sums all of it before it is reduced */
		t->grad_held = all;
		t->grad_room = t->n;
	}
}

/* Decides how much of a tensor is offloaded. *due: elements that this tensor and those before it
 * should offload. *given: elements that they do offload. So all tensors together come close to the
 * ratio, whatever their sizes. */
static void decide_offloaded(const struct kolo_zero *z, struct zero_tensor *t, double *due,
			     size_t *given)
{
	double ratio = z->config.offload_optimizer.ratio, blocks;

	*due += ratio * (double)t->chunk;
	blocks = (*due - (double)*given) / KOLO_ZERO_BLOCK + 0.5;
	t->offloaded.room = ratio >= 1    ? t->chunk
			    : blocks >= 1 ? zero_min(t->chunk, (size_t)blocks * KOLO_ZERO_BLOCK)
					  : 0;
	*given += t->offloaded.room;
	t->offloaded.n = zero_min(t->offloaded.room, t->held.n);
	t->offloaded.grad_type = z->device && !zero_sums_reduced(z) ? t->given_type : t->grad_type;
	if (!z->device || zero_sums_steps(z) || zero_sums_reduced(z))
		return;
	/* What is offloaded is downloaded from buckets. */
	t->grad_held = zero_part_on_device(t, t->held);
	t->grad_room = t->chunk - t->offloaded.room;
}

static void decide_shard(struct kolo_zero *z, struct zero_tensor *t, size_t *in_host)
{
	enum zero_place place = place_of(z, &z->config.offload_param);
	struct zero_arena *files = &z->arenas[ZERO_IN_FILES][ZERO_PARAMETERS];
	size_t len = zero_whole_pages(t->chunk * kolo_type_size(t->type));

	if (!t->sharded)
		return;
	if (place == ZERO_IN_FILES && t->chunk <= *in_host) {
		*in_host -= t->chunk;
		place = z->device ? ZERO_ON_HOST : ZERO_ON_DEVICE;
	}
	t->shard_place = place;
	if (place != ZERO_IN_FILES)
		return;
	t->shard_offset = files->used;
	files->used += len;
	z->param_buffers.n = z->config.offload_param.buffers;
	z->param_buffers.len = zero_max(z->param_buffers.len, len);
}

static void decide_places(struct kolo_zero *z)
{
	size_t given = 0, in_host = z->config.offload_param.in_host;
	double due = 0;

	z->state_place = place_of(z, &z->config.offload_optimizer);
	for (int i = 0; i < z->ntensors; i++) {
		struct zero_tensor *t = &z->tensors[i];

		decide_shard(z, t, &in_host);
		if (!t->trained)
			continue;
		decide_parts(z, t);
		if (z->state_place != ZERO_ON_DEVICE)
			decide_offloaded(z, t, &due, &given);
	}
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static void plan_state_blocks(struct kolo_zero *z)
{
	struct zero_state_blocks *u = &z->state_blocks;
	int moments = 0;

	if (z->noffloaded == 0 || z->state_place != ZERO_IN_FILES)
		return;
	for (int g = 0; g < z->config.ngroups; g++) {
		int n = zero_optimizer_moments(z->config.optimizer, &z->config.groups[g]);

		moments = n > moments ? n : moments;
	}
	u->elements = zero_min(z->slice, z->noffloaded);
	u->nblocks = (z->noffloaded + u->elements - 1) / u->elements;
	u->states = 1 + moments;
	u->nbuffers = z->config.offload_optimizer.buffers;
	u->buffer_len = u->elements * (size_t)u->states * sizeof(float);
	z->arenas[ZERO_IN_FILES][ZERO_MASTERS].used = u->nblocks * u->elements * sizeof(float);
	z->arenas[ZERO_IN_FILES][ZERO_MOMENTS].used =
		u->nblocks * u->elements * sizeof(float) * (size_t)moments;
}

/* Values that are updated on one side and belong on the other pass through buffers. */
static void plan_staging(struct kolo_zero *z)
{
	size_t up = 0, down = 0;

	z->slice = (z->config.offload_optimizer.buffer + KOLO_ZERO_BLOCK - 1) / KOLO_ZERO_BLOCK *
		   KOLO_ZERO_BLOCK;
	for (int i = 0; i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];
		size_t size = kolo_type_size(t->type), rest = t->chunk - t->offloaded.room;

		if (!z->device || !t->trained)
			continue;
		if (t->shard_place == ZERO_ON_DEVICE)
			up = zero_max(up, zero_min(z->slice, t->offloaded.room) * size);
		else
			down = zero_max(down, zero_min(z->slice, rest) * size);
	}
	z->uploads = (struct zero_staging){ .len = zero_whole_lines(up),
					    .n = up ? z->config.offload_optimizer.buffers : 0 };
	z->downloads = (struct zero_staging){ .len = zero_whole_lines(down), .n = down ? 2 : 0 };
}

static int plan_param_buffers(struct kolo_zero *z)
{
	struct zero_param_buffers *s = &z->param_buffers;

	s->tensor = calloc((size_t)s->n + 1, sizeof(*s->tensor));
	s->tickets = calloc((size_t)s->n + 1, sizeof(*s->tickets));
	if (!s->tensor || !s->tickets)
		return kolo_error_set(KOLO_ENOMEM, "%d buffers of shards: out of memory", s->n);
	for (int i = 0; i < s->n; i++)
		s->tensor[i] = -1;
	return 0;
}

/* Places for sums of squares of the parts of which this rank has gradients: for Lamb, and on a
 * device of its own for the norm. */
static void plan_sums(struct kolo_zero *z)
{
	if (z->on_host && !zero_optimizer_has_ratios(z->config.optimizer))
		return;
	for (int i = 0; i < z->ntensors; i++)
		for (int r = 0; r < z->nranks; r++) {
			bool sums = z->config.parameter_server
					    ? z->rank == 0
					    : r == z->rank || z->config.stage == 0;

			if (r == z->rank)
				z->tensors[i].sums_at = z->nsums;
			if (z->tensors[i].trained && sums)
				z->nsums +=
					zero_blocks(zero_owned(z->tensors[i].n, z->nranks, r).n);
		}
	z->nsums *= z->on_host ? 2 : ZERO_BLOCK_DIGITS;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void take_params(struct kolo_zero *z, struct zero_tensor *t, size_t size)
{
	struct zero_arena *device = &z->arenas[ZERO_ON_DEVICE][ZERO_PARAMETERS];

	if (kolo_type_size(t->type) != size)
		return;
	if (t->sharded && t->shard_place != ZERO_IN_FILES)
		t->shard = zero_arena_take(&z->arenas[t->shard_place][ZERO_PARAMETERS],
					   t->chunk * size);
	else if (!t->sharded && !t->in_user)
		t->param = zero_arena_take(device, t->n * size);
	if (t->sharded)
		t->param = t->region.base;
}

static void take_gradients(struct kolo_zero *z, struct zero_tensor *t, size_t size)
{
	struct zero_arena *device = &z->arenas[ZERO_ON_DEVICE][ZERO_GRADIENTS];

	if (kolo_type_size(t->grad_type) == size)
		t->grad = zero_arena_take(device, t->grad_room * size);
	if (size == sizeof(float))
		t->sum = zero_sums_steps(z) ? t->grad
			 : t->micros > 1    ? zero_arena_take(device, t->n * size)
					    : NULL;
	if (z->device && kolo_type_size(t->offloaded.grad_type) == size)
		t->offloaded.grad = zero_arena_take(&z->arenas[ZERO_ON_HOST][ZERO_GRADIENTS],
						    t->offloaded.room * size);
	if (!z->device && t->grad)
		t->offloaded.grad =
			zero_at(t->grad, t->grad_type, t->held.first - t->grad_held.first);
}

static void take_state(struct kolo_zero *z, struct zero_tensor *t)
{
	size_t on_device = (t->held_room - t->offloaded.room) * sizeof(float),
	       on_host = t->offloaded.room * sizeof(float);
	int moments = zero_optimizer_moments(z->config.optimizer, &z->config.groups[t->group]);
	bool files = z->state_place == ZERO_IN_FILES;

	if (on_device && (t->type != KOLO_F32 || (t->sharded && t->shard_place != ZERO_ON_DEVICE)))
		t->master = zero_arena_take(&z->arenas[ZERO_ON_DEVICE][ZERO_MASTERS], on_device);
	for (int m = 0; on_device && m < moments; m++)
		t->moment[m] = zero_arena_take(&z->arenas[ZERO_ON_DEVICE][ZERO_MOMENTS], on_device);
	if (on_host && !files)
		t->offloaded.master =
			zero_arena_take(&z->arenas[ZERO_ON_HOST][ZERO_MASTERS], on_host);
	for (int m = 0; on_host && !files && m < moments; m++)
		t->offloaded.moment[m] =
			zero_arena_take(&z->arenas[ZERO_ON_HOST][ZERO_MOMENTS], on_host);
}

void zero_take_memory(struct kolo_zero *z)
{
	for (size_t size = sizeof(float); size >= sizeof(uint16_t); size /= 2)
		for (int i = 0; i < z->ntensors; i++) {
			struct zero_tensor *t = &z->tensors[i];

			take_params(z, t, size);
			if (t->trained)
				take_gradients(z, t, size);
			if (t->trained && size == sizeof(float))
				take_state(z, t);
		}
}

/* Pinned is host memory in which copies to or from a device begin or end, if the config wants that.
 * A device also writes sums, so these are pinned always. */
bool zero_is_pinned(const struct kolo_zero *z, enum zero_kind kind)
{
	if (!z->device)
		return false;
	switch (kind) {
	case ZERO_GRADIENTS:
	case ZERO_STAGING: return z->config.offload_optimizer.pin;
	case ZERO_PARAMETERS:
	case ZERO_PARAM_BUFFERS: return z->config.offload_param.pin;
	case ZERO_SUMS: return !z->on_host;
	default: return false;
	}
}

size_t zero_bucket_bytes(const struct kolo_zero *z)
{
	int nreduced = z->reducer.nplanned + z->config.parameter_server;

	return (size_t)nreduced * z->reducer.buffer_len +
	       (size_t)z->gatherer.nbuffers * z->gatherer.buffer_len;
}

/* Memory that does not belong to tensors. */
static void count_buffers(struct kolo_zero *z)
{
	struct zero_arena *host = z->arenas[ZERO_ON_HOST], *device = z->arenas[ZERO_ON_DEVICE];

	device[ZERO_BUCKETS].used = zero_bucket_bytes(z);
	device[ZERO_STAGING].used = (size_t)z->downloads.n * z->downloads.len;
	host[ZERO_STAGING].used = (size_t)z->uploads.n * z->uploads.len;
	host[ZERO_STATE_BLOCKS].used =
		(size_t)z->state_blocks.nbuffers * z->state_blocks.buffer_len;
	host[ZERO_PARAM_BUFFERS].used = (size_t)z->param_buffers.n * z->param_buffers.len;
	host[ZERO_SUMS].used = (z->nsums + 1) * sizeof(double);
	device[ZERO_SUMS].used = z->on_host ? 0 : sizeof(float);
}

/* ---- All ------------------------------------------------------------------------------------- */

static int copy_groups(struct kolo_zero *z)
{
	int n = z->config.ngroups ? z->config.ngroups : 1;
	struct kolo_zero_group *groups = calloc((size_t)n, sizeof(*groups));

	if (!groups) {
		z->config.groups = NULL;
		return kolo_error_set(KOLO_ENOMEM, "%d groups: out of memory", n);
	}
	if (z->config.ngroups)
		memcpy(groups, z->config.groups, (size_t)n * sizeof(*groups));
	else
		kolo_zero_group_init(groups, z->config.optimizer);
	z->config.groups = groups;
	z->config.ngroups = n;
	return 0;
}

static int copy_path(struct kolo_zero_offload *o)
{
	const char *from = o->path;
	char *copy = from ? malloc(strlen(from) + 1) : NULL;

	o->path = copy;
	if (from && !copy)
		return kolo_error_set(KOLO_ENOMEM, "a path: out of memory");
	if (copy)
		strcpy(copy, from);
	return 0;
}

static void init_engine(struct kolo_zero *z, const struct kolo_zero_config *config, int rank,
			int nranks)
{
	z->config = *config;
	z->config.groups = NULL;
	z->device = config->device;
	z->on_host = !z->device || z->device->ops->on_host;
	z->rank = rank;
	z->nranks = nranks;
	z->kernels = zero_kernels_best();
	z->predivide = config->predivide > 0 ? config->predivide : nranks;
	zero_scaler_init(&z->scaler, config);
	z->micro_batch = config->micro_batch;
	z->nonfinite.tensor = -1;
	z->trace.hash = ZERO_HASH;
}

int zero_describe(struct kolo_zero *z, const struct kolo_zero_config *config,
		  const struct kolo_zero_tensor *tensors, int ntensors, int rank, int nranks)
{
	int param, optimizer, rc;

	init_engine(z, config, rank, nranks);
	/* Copies both, so that the engine uses no memory of the caller. */
	param = copy_path(&z->config.offload_param);
	optimizer = copy_path(&z->config.offload_optimizer);
	rc = param < 0 ? param : optimizer;
	z->config.groups = config->groups;
	if (rc < 0)
		z->config.groups = NULL;
	if (rc == 0)
		rc = copy_groups(z);
	if (rc == 0)
		rc = init_tensors(z, tensors, ntensors);
	if (rc < 0)
		return rc;
	decide_places(z);
	if ((rc = zero_describe_buckets(z)) < 0)
		return rc;
	plan_staging(z);
	plan_state_blocks(z);
	plan_sums(z);
	zero_take_memory(z);
	count_buffers(z);
	return plan_param_buffers(z);
}

void zero_undescribe(struct kolo_zero *z)
{
	zero_plan_free(&z->reducer.plan);
	zero_plan_free(&z->gatherer.plan);
	for (int i = 0; i < z->ntensors; i++)
		free(z->tensors[i].name);
	free(z->tensors);
	free(z->order);
	free(z->param_buffers.tensor);
	free(z->param_buffers.tickets);
	free((void *)z->config.groups);
	free((void *)z->config.offload_param.path);
	free((void *)z->config.offload_optimizer.path);
}
