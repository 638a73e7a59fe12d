/* Checks what the caller passes to kolo_zero_create: by itself on each rank (zero_check_arguments),
 * then compared between all ranks (zero_agree, zero_agree_tensors). */
#include "zero/create/check.h"

#include "zero/base/basics.h"
#include "zero/core/layout.h"
#include "zero/optim/optimizer.h"
#include "zero/optim/scaler.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int check_flag(const char *name, int value)
{
	if (value == 0 || value == 1)
		return 0;
	return kolo_error_set(KOLO_EINVAL, "config.%s is %d, and must be 0 or 1", name, value);
}

static int check_offload_numbers(const char *name, const struct kolo_zero_offload *o)
{
	const struct {
		const char *name, *want;
		double value;
		bool ok;
	} fields[] = {
		{ "place", "one of enum kolo_zero_place", o->place,
		  (unsigned)o->place <= KOLO_ZERO_ON_NVME },
		{ "ratio", "from 0 to 1", o->ratio, o->ratio >= 0 && o->ratio <= 1 },
		{ "pin", "0 or 1", o->pin, o->pin == 0 || o->pin == 1 },
		{ "buffers", "from 2 to 4096", o->buffers, o->buffers >= 2 && o->buffers <= 4096 },
		{ "buffer", "from 1 to 2^40", (double)o->buffer,
		  o->buffer >= 1 && o->buffer <= (size_t)1 << 40 },
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (!fields[i].ok)
			return kolo_error_set(KOLO_EINVAL, "config.%s.%s is %g, and must be %s",
					      name, fields[i].name, fields[i].value,
					      fields[i].want);
	for (size_t i = 0; i < sizeof(o->reserved) / sizeof(o->reserved[0]); i++)
		if (o->reserved[i])
			return kolo_error_set(
				KOLO_EINVAL,
				"config.%s.reserved is not zero: use kolo_zero_offload_init", name);
	return 0;
}

static int check_offload(const char *name, const struct kolo_zero_offload *o, int stage, int least)
{
	int rc = check_offload_numbers(name, o);

	if (rc < 0 || o->place == KOLO_ZERO_ON_DEVICE)
		return rc;
	if (stage < least)
		return kolo_error_set(
			KOLO_EINVAL,
			"config.%s at stage %d, where that is not sharded: it needs stage %d%s",
			name, stage, least, least < 3 ? " at least" : "");
	if (o->place == KOLO_ZERO_ON_NVME && (!o->path || !*o->path))
		return kolo_error_set(KOLO_EINVAL, "config.%s is on nvme without a path", name);
	return 0;
}

static int check_device(const struct kolo_zero_config *c)
{
	int rc = check_offload("offload_optimizer", &c->offload_optimizer, c->stage, 1);

	if (rc == 0)
		rc = check_offload("offload_param", &c->offload_param, c->stage, 3);
	if (rc < 0)
		return rc;
	if (c->parameter_server && c->device)
		return kolo_error_set(KOLO_EINVAL,
				      "config.parameter_server works in host memory only");
	if (c->device && !c->device->ops->on_host && !c->overlap)
		return kolo_error_set(
			KOLO_EINVAL,
			"config.overlap is 0, and collectives on this device's memory need a queue: set it to 1");
	if (c->threads < 0 || c->threads > 4096)
		return kolo_error_set(KOLO_EINVAL, "config.threads is %d, and must be 0 to 4096",
				      c->threads);
	if (c->io_block < 4096 || c->io_block % 4096 || c->io_block > 1 << 30 || c->io_depth < 1 ||
	    c->io_depth > 4096)
		return kolo_error_set(
			KOLO_EINVAL,
			"config.io_block and io_depth are %zu and %d; want a multiple of 4096 up to 2^30, and 1 to 4096",
			c->io_block, c->io_depth);
	return 0;
}

static int check_combinations(const struct kolo_zero_config *c)
{
	if (c->tied && (!c->world || c->parameter_server))
		return kolo_error_set(
			KOLO_EINVAL,
			"config.tied needs config.world, and does not go with a parameter server");
	if (c->parameter_server && c->stage != 0)
		return kolo_error_set(
			KOLO_EINVAL, "config.parameter_server goes with stage 0, not %d", c->stage);
	if (c->parameter_server && c->overlap)
		return kolo_error_set(
			KOLO_EINVAL,
			"config.parameter_server has no overlap: set config.overlap to 0");
	if (c->ngroups < 0 || (c->groups && c->ngroups == 0) || (!c->groups && c->ngroups))
		return kolo_error_set(KOLO_EINVAL, "config.ngroups is %d, and config.groups is %s",
				      c->ngroups, c->groups ? "not NULL" : "NULL");
	for (size_t i = 0; i < sizeof(c->reserved) / sizeof(c->reserved[0]); i++)
		if (c->reserved[i])
			return kolo_error_set(
				KOLO_EINVAL,
				"config.reserved is not zero: use kolo_zero_config_init");
	return 0;
}

static int check_config(const struct kolo_zero_config *c)
{
	const struct {
		const char *name;
		int value;
	} flags[] = {
		{ "overlap", c->overlap },
		{ "contiguous", c->contiguous },
		{ "reduce_scatter", c->reduce_scatter },
		{ "allgather", c->allgather },
		{ "parameter_server", c->parameter_server },
		{ "strict", c->strict },
	};
	int rc = 0;

	if (c->stage < 0 || c->stage > 3)
		return kolo_error_set(KOLO_EINVAL, "config.stage is %d, and must be 0 to 3",
				      c->stage);
	if (c->accumulation < 1)
		return kolo_error_set(KOLO_EINVAL,
				      "config.accumulation is %d, and must be at least 1",
				      c->accumulation);
	if (c->micros < 0)
		return kolo_error_set(KOLO_EINVAL, "config.micros is %d, and must be at least 0",
				      c->micros);
	if (c->reduce_bucket < ZERO_LEAST_BUCKET || c->gather_bucket < 1)
		return kolo_error_set(
			KOLO_EINVAL,
			"config.reduce_bucket and gather_bucket are %zu and %zu elements, and must be at least %d and 1",
			c->reduce_bucket, c->gather_bucket, ZERO_LEAST_BUCKET);
	if (!(c->clip >= 0 && c->clip < __builtin_inf()))
		return kolo_error_set(KOLO_EINVAL,
				      "config.clip is %g, and must be finite and at least 0",
				      c->clip);
	if ((rc = zero_scaler_check(c)) < 0)
		return rc;
	if (!(c->predivide >= 0 && c->predivide < __builtin_inf()))
		return kolo_error_set(KOLO_EINVAL,
				      "config.predivide is %g, and must be finite and at least 0",
				      c->predivide);
	if (!kolo_zero_optimizer_name(c->optimizer))
		return kolo_error_set(KOLO_EINVAL,
				      "config.optimizer is %d, and there is none of that number",
				      (int)c->optimizer);
	for (size_t i = 0; rc == 0 && i < sizeof(flags) / sizeof(flags[0]); i++)
		rc = check_flag(flags[i].name, flags[i].value);
	if (rc == 0)
		rc = check_combinations(c);
	return rc == 0 ? check_device(c) : rc;
}

enum { MOST_PARTS = 65536 }; /* as many as there may be ranks */

static int check_division(const struct kolo_zero_tensor *t)
{
	const struct kolo_zero_division *d = t->division;

	if (d->dim < 0 || d->dim >= t->ndims || d->parts < 1 || d->part < 0 ||
	    d->part >= d->parts || d->parts > MOST_PARTS || d->fused < 0)
		return kolo_error_set(
			KOLO_EINVAL,
			"tensor '%s' is part %d of %d along dimension %d, fused %d, and has %d dimensions",
			t->name, d->part, d->parts, d->dim, d->fused, t->ndims);
	if (d->fused > 1 && t->shape[d->dim] % (size_t)d->fused)
		return kolo_error_set(
			KOLO_EINVAL,
			"tensor '%s': dimension %d is %zu, which %d fused matrices do not divide",
			t->name, d->dim, t->shape[d->dim], d->fused);
	return 0;
}

static int check_tensor(const struct kolo_zero_tensor *t, int index, int ngroups)
{
	size_t n = 1;
	int rc;

	if (!t->name || !*t->name)
		return kolo_error_set(KOLO_EINVAL, "tensor %d has no name", index);
	if (t->type != KOLO_F32 && t->type != KOLO_F16 && t->type != KOLO_BF16)
		return kolo_error_set(
			KOLO_EINVAL, "tensor '%s' is of type %s; tensors are f32, f16 or bf16",
			t->name, kolo_type_name(t->type) ? kolo_type_name(t->type) : "unknown");
	if (t->gradient_type && t->gradient_type != t->type && t->gradient_type != KOLO_F32)
		return kolo_error_set(
			KOLO_EINVAL,
			"tensor '%s' is of type %s, and its gradients are of type %s; want the same, or f32",
			t->name, kolo_type_name(t->type),
			kolo_type_name(t->gradient_type) ? kolo_type_name(t->gradient_type)
							 : "unknown");
	if (t->ndims < 0 || t->ndims > KOLO_ZERO_DIMS)
		return kolo_error_set(KOLO_EINVAL,
				      "tensor '%s' has %d dimensions; 0 to %d are possible",
				      t->name, t->ndims, KOLO_ZERO_DIMS);
	for (int d = 0; d < t->ndims; d++)
		if (t->shape[d] < 1 || __builtin_mul_overflow(n, t->shape[d], &n) ||
		    n > (size_t)1 << 46)
			return kolo_error_set(
				KOLO_EINVAL,
				"tensor '%s': dimension %d is %zu; want at least 1, and 2^46 elements in all at most",
				t->name, d, t->shape[d]);
	if (t->group < 0 || t->group >= ngroups)
		return kolo_error_set(KOLO_EINVAL,
				      "tensor '%s' is of group %d; there are %d groups", t->name,
				      t->group, ngroups);
	for (size_t i = 0; i < sizeof(t->reserved) / sizeof(t->reserved[0]); i++)
		if (t->reserved[i])
			return kolo_error_set(KOLO_EINVAL, "tensor '%s': reserved is not zero",
					      t->name);
	if (t->division && (rc = check_division(t)) < 0)
		return rc;
	if (t->division && n > ((size_t)1 << 46) / (size_t)t->division->parts)
		return kolo_error_set(
			KOLO_EINVAL,
			"tensor '%s': %d parts of %zu elements; want 2^46 elements in all at most",
			t->name, t->division->parts, n);
	if (t->frozen && (t->replicated || t->tied))
		return kolo_error_set(KOLO_EINVAL, "tensor '%s' is frozen, and replicated or tied",
				      t->name);
	rc = check_flag("frozen of a tensor", t->frozen);
	if (rc == 0)
		rc = check_flag("replicated of a tensor", t->replicated);
	if (rc == 0)
		rc = check_flag("summed of a tensor", t->summed);
	return rc == 0 ? check_flag("tied of a tensor", t->tied) : rc;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const struct kolo_zero_tensor *tensors, int n)
{
	const char **names = calloc((size_t)n, sizeof(*names));
	int rc = 0;

	if (!names)
		return kolo_error_set(KOLO_ENOMEM, "names of %d tensors: out of memory", n);
	for (int i = 0; i < n; i++)
		names[i] = tensors[i].name;
	qsort(names, (size_t)n, sizeof(*names), compare_names);
	for (int i = 1; rc == 0 && i < n; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			rc = kolo_error_set(KOLO_EINVAL, "two tensors are called '%s'", names[i]);
	free(names);
	return rc;
}

/* The memory of one tensor. */
struct span {
	uintptr_t begin, end;
	const char *name;
};

static int compare_spans(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Tensors that share memory would be updated twice. */
static int check_memory(const struct kolo_zero_tensor *tensors, int ntensors)
{
	struct span *spans = calloc((size_t)ntensors, sizeof(*spans));
	int rc = 0, n = 0;

	if (!spans)
		return kolo_error_set(KOLO_ENOMEM, "memory of %d tensors: out of memory", ntensors);
	for (int i = 0; i < ntensors; i++) {
		const struct kolo_zero_tensor *t = &tensors[i];
		size_t bytes = kolo_type_size(t->type);

		for (int d = 0; d < t->ndims; d++)
			bytes *= t->shape[d];
		if (t->data)
			spans[n++] = (struct span){ (uintptr_t)t->data, (uintptr_t)t->data + bytes,
						    t->name };
	}
	qsort(spans, (size_t)n, sizeof(*spans), compare_spans);
	for (int i = 1; rc == 0 && i < n; i++)
		if (spans[i].begin < spans[i - 1].end)
			rc = kolo_error_set(
				KOLO_EINVAL,
				"tensors '%s' and '%s' share memory: list it once; what is used in two places is one tensor, with the sum of its gradients",
				spans[i - 1].name, spans[i].name);
	free(spans);
	return rc;
}

int zero_check_arguments(const struct kolo_zero_config *c, const struct kolo_zero_tensor *tensors,
			 int ntensors)
{
	int rc, ngroups;

	if (!c || !tensors || ntensors < 1)
		return kolo_error_set(
			KOLO_EINVAL, "kolo_zero_create needs a config and at least one tensor (%d)",
			ntensors);
	if ((rc = check_config(c)) < 0)
		return rc;
	ngroups = c->ngroups ? c->ngroups : 1;
	for (int i = 0; i < c->ngroups; i++)
		if ((rc = zero_optimizer_check(c->optimizer, &c->groups[i], i)) < 0)
			return rc;
	for (int i = 0; i < ntensors; i++)
		if ((rc = check_tensor(&tensors[i], i, ngroups)) < 0)
			return rc;
	for (int i = 0; i < ntensors; i++)
		if ((tensors[i].tied && !c->tied) || (tensors[i].replicated && !c->world))
			return kolo_error_set(
				KOLO_EINVAL, "tensor '%s' is %s, and config.%s is NULL",
				tensors[i].name, tensors[i].tied ? "tied" : "replicated",
				tensors[i].tied ? "tied" : "world");
	for (int i = 0; i < ntensors; i++)
		if (tensors[i].summed && !c->micros)
			return kolo_error_set(
				KOLO_EINVAL,
				"tensor '%s' is summed, and config.micros is 0: it has one gradient in a micro-step",
				tensors[i].name);
	for (int i = 0; i < ntensors; i++)
		if (tensors[i].division && !c->world)
			return kolo_error_set(
				KOLO_EINVAL,
				"tensor '%s' has a division, and config.world is NULL: other engines have the other parts",
				tensors[i].name);
	rc = check_names(tensors, ntensors);
	return rc == 0 ? check_memory(tensors, ntensors) : rc;
}

/* ---- Between ranks --------------------------------------------------------------------------- */

static uint64_t hash_schedule(uint64_t hash, const struct kolo_zero_schedule *s)
{
	const double values[] = {
		s->type,
		s->min_lr,
		s->max_lr,
		(double)s->warmup_steps,
		(double)s->total_steps,
		s->linear,
		s->warmup_ratio,
		s->final_ratio,
		(double)s->first_steps,
		(double)s->second_steps,
		(double)s->decay_steps,
		s->decay_rate,
		s->cycle_momentum,
		s->min_momentum,
		s->max_momentum,
		s->momentum_decay_rate,
		(double)s->range_steps,
		s->range_rate,
		s->staircase,
	};

	return zero_hash(hash, values, sizeof(values));
}

uint64_t zero_hash_config(const struct kolo_zero_config *c)
{
	const double values[] = {
		c->stage,
		c->accumulation,
		c->micros,
		(double)c->micro_batch,
		c->clip,
		c->loss_scale,
		c->optimizer,
		c->ngroups,
		c->overlap,
		(double)c->reduce_bucket,
		(double)c->gather_bucket,
		c->contiguous,
		c->reduce_scatter,
		c->allgather,
		(double)c->sub_group,
		(double)c->persistence,
		(double)c->prefetch,
		(double)c->max_live,
		(double)c->reuse_distance,
		c->parameter_server,
		c->predivide,
		c->scaling.initial,
		c->scaling.min,
		(double)c->scaling.window,
		c->scaling.hysteresis,
		c->scaling.consecutive,
		c->offload_optimizer.place,
		c->offload_optimizer.ratio,
		c->offload_optimizer.pin,
		c->offload_optimizer.buffers,
		(double)c->offload_optimizer.buffer,
		c->offload_param.place,
		c->offload_param.pin,
		c->offload_param.buffers,
		(double)c->offload_param.in_host,
		c->device != NULL,
		c->strict,
		c->world != NULL,
		c->tied != NULL,
	};
	uint64_t hash = zero_hash(ZERO_HASH, values, sizeof(values));

	if (c->order)
		hash = zero_hash(hash, c->order, strlen(c->order));
	for (int i = 0; i < c->ngroups; i++) {
		const struct kolo_zero_group *g = &c->groups[i];
		const double of_group[] = { g->lr,           g->beta1,    g->beta2,     g->eps,
					    g->weight_decay, g->momentum, g->dampening, g->lr_decay,
					    g->initial,      g->nesterov };

		hash = hash_schedule(zero_hash(hash, of_group, sizeof(of_group)), &g->schedule);
	}
	return hash;
}

static uint64_t hash_tensor(const struct kolo_zero_tensor *t)
{
	uint64_t hash = zero_hash(ZERO_HASH, t->name, strlen(t->name) + 1);
	enum kolo_type given = t->gradient_type ? t->gradient_type : t->type;
	const int values[] = { t->ndims,   (int)t->type,  t->group, t->frozen,
			       (int)given, t->replicated, t->tied,  t->summed };

	if (t->division)
		hash = zero_hash(hash, t->division, sizeof(*t->division));
	return zero_hash(zero_hash(hash, values, sizeof(values)), t->shape,
			 (size_t)t->ndims * sizeof(t->shape[0]));
}

/* Ways in which ranks may differ, in the order in which they are reported. */
enum { NTENSORS, CONFIG, NWAYS };

/* Finds for each way the lowest rank that differs from rank 0; nranks if none does. Needs no
 * memory. */
static int find_different(struct kolo_comm *comm, uint64_t ntensors, uint64_t config,
			  uint64_t *different)
{
	uint64_t of_rank_0[2] = { ntensors, config }, nranks = (uint64_t)kolo_comm_nranks(comm);
	uint64_t rank = (uint64_t)kolo_comm_rank(comm);
	int rc = kolo_broadcast(comm, of_rank_0, of_rank_0, 2, KOLO_U64, 0, NULL);

	different[NTENSORS] = ntensors != of_rank_0[0] ? rank : nranks;
	different[CONFIG] = config != of_rank_0[1] ? rank : nranks;
	return rc < 0 ? rc
		      : kolo_all_reduce(comm, different, different, NWAYS, KOLO_U64, KOLO_MIN,
					NULL);
}

int zero_agree(struct kolo_comm *comm, int rc, int ntensors, const struct kolo_zero_config *config)
{
	uint64_t different[NWAYS], nranks = (uint64_t)kolo_comm_nranks(comm);

	if ((rc = zero_share_failure(comm, rc)) < 0 ||
	    (rc = find_different(comm, (uint64_t)ntensors, zero_hash_config(config), different)) <
		    0)
		return rc;
	if (different[NTENSORS] < nranks)
		return kolo_error_set(
			KOLO_EMISMATCH,
			"rank %d passed another number of tensors than rank 0; rank %d passed %d",
			(int)different[NTENSORS], kolo_comm_rank(comm), ntensors);
	if (different[CONFIG] < nranks)
		return kolo_error_set(KOLO_EMISMATCH, "rank %d passed another config than rank 0",
				      (int)different[CONFIG]);
	return 0;
}

int zero_hash_tensors(const struct kolo_zero_tensor *tensors, int ntensors, uint64_t **out)
{
	size_t n = (size_t)ntensors;
	uint64_t *hashes = calloc(2 * n, sizeof(*hashes));

	*out = hashes;
	if (!hashes)
		return kolo_error_set(KOLO_ENOMEM, "hashes of %d tensors: out of memory", ntensors);
	for (size_t i = 0; i < n; i++)
		hashes[i] = hashes[n + i] = hash_tensor(&tensors[i]);
	return 0;
}

int zero_agree_tensors(struct kolo_comm *comm, const struct kolo_zero_tensor *tensors, int ntensors,
		       uint64_t *hashes)
{
	size_t n = (size_t)ntensors;
	uint64_t differs = n;
	int rc = kolo_broadcast(comm, hashes, hashes, n, KOLO_U64, 0, NULL);

	for (size_t i = n; i-- > 0;)
		if (hashes[i] != hashes[n + i])
			differs = i;
	if (rc == 0)
		rc = kolo_all_reduce(comm, &differs, &differs, 1, KOLO_U64, KOLO_MIN, NULL);
	if (rc == 0 && differs < n)
		return kolo_error_set(
			KOLO_EMISMATCH,
			"rank %d: tensor %llu ('%s' here) has another name, shape, type or group on another rank",
			kolo_comm_rank(comm), (unsigned long long)differs, tensors[differs].name);
	return rc;
}
