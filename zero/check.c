/* What the caller passes to kolo_zero_create: checked on each rank, then compared between all. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

static int check_flag(const char *name, int value)
{
	if (value == 0 || value == 1)
		return 0;
	return kolo_error_set(KOLO_EINVAL, "config.%s is %d, and must be 0 or 1", name, value);
}

static int check_combinations(const struct kolo_zero_config *c)
{
	if (c->parameter_server && c->stage != 0)
		return kolo_error_set(KOLO_EINVAL, "config.parameter_server goes with stage 0, not %d",
				      c->stage);
	if (c->parameter_server && c->overlap)
		return kolo_error_set(KOLO_EINVAL,
				      "config.parameter_server has no overlap: set config.overlap to 0");
	if (c->ngroups < 0 || (c->groups && c->ngroups == 0) || (!c->groups && c->ngroups))
		return kolo_error_set(KOLO_EINVAL, "config.ngroups is %d, and config.groups is %s",
				      c->ngroups, c->groups ? "not NULL" : "NULL");
	for (size_t i = 0; i < sizeof(c->reserved) / sizeof(c->reserved[0]); i++)
		if (c->reserved[i])
			return kolo_error_set(KOLO_EINVAL,
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
	};
	int rc = 0;

	if (c->stage < 0 || c->stage > 3)
		return kolo_error_set(KOLO_EINVAL, "config.stage is %d, and must be 0 to 3", c->stage);
	if (c->accumulation < 1)
		return kolo_error_set(KOLO_EINVAL, "config.accumulation is %d, and must be at least 1",
				      c->accumulation);
	if (c->micro_batch < 1 || c->reduce_bucket < 1 || c->gather_bucket < 1)
		return kolo_error_set(
			KOLO_EINVAL,
			"config.micro_batch, reduce_bucket and gather_bucket are %zu, %zu and %zu, and must be at least 1",
			c->micro_batch, c->reduce_bucket, c->gather_bucket);
	if (!(c->clip >= 0 && c->clip < __builtin_inf()))
		return kolo_error_set(KOLO_EINVAL, "config.clip is %g, and must be finite and at least 0",
				      c->clip);
	if (!(c->loss_scale > 0 && c->loss_scale < __builtin_inf()))
		return kolo_error_set(KOLO_EINVAL, "config.loss_scale is %g, and must be finite and above 0",
				      c->loss_scale);
	if (!kolo_zero_optimizer_name(c->optimizer))
		return kolo_error_set(KOLO_EINVAL, "config.optimizer is %d, and there is none of that number",
				      (int)c->optimizer);
	for (size_t i = 0; rc == 0 && i < sizeof(flags) / sizeof(flags[0]); i++)
		rc = check_flag(flags[i].name, flags[i].value);
	return rc == 0 ? check_combinations(c) : rc;
}

static int check_tensor(const struct kolo_zero_tensor *t, int index, int ngroups)
{
	size_t n = 1;

	if (!t->name || !*t->name)
		return kolo_error_set(KOLO_EINVAL, "tensor %d has no name", index);
	if (t->type != KOLO_F32 && t->type != KOLO_F16 && t->type != KOLO_BF16)
		return kolo_error_set(KOLO_EINVAL, "tensor '%s' is of type %s; tensors are f32, f16 or bf16",
				      t->name, kolo_type_name(t->type) ? kolo_type_name(t->type) : "unknown");
	if (t->ndims < 0 || t->ndims > KOLO_ZERO_DIMS)
		return kolo_error_set(KOLO_EINVAL, "tensor '%s' has %d dimensions; 0 to %d are possible",
				      t->name, t->ndims, KOLO_ZERO_DIMS);
	for (int d = 0; d < t->ndims; d++)
		if (t->shape[d] < 1 || __builtin_mul_overflow(n, t->shape[d], &n) || n > (size_t)1 << 46)
			return kolo_error_set(KOLO_EINVAL,
					      "tensor '%s': dimension %d is %zu, which is no size for it",
					      t->name, d, t->shape[d]);
	if (t->group < 0 || t->group >= ngroups)
		return kolo_error_set(KOLO_EINVAL, "tensor '%s' is of group %d; there are %d groups", t->name,
				      t->group, ngroups);
	for (size_t i = 0; i < sizeof(t->reserved) / sizeof(t->reserved[0]); i++)
		if (t->reserved[i])
			return kolo_error_set(KOLO_EINVAL, "tensor '%s': reserved is not zero", t->name);
	return check_flag("frozen of a tensor", t->frozen);
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

int zero_check_arguments(const struct kolo_zero_config *c, const struct kolo_zero_tensor *tensors,
			 int ntensors)
{
	int rc, ngroups;

	if (!c || !tensors || ntensors < 1)
		return kolo_error_set(KOLO_EINVAL,
				      "kolo_zero_create needs a config and at least one tensor (%d)",
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
	return check_names(tensors, ntensors);
}

/* ---- Between ranks -------------------------------------------------------------------------------------- */

/* FNV-1a. */
static uint64_t mix(uint64_t hash, const void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
	return hash;
}

enum { NVALUES = 20 };

static uint64_t hash_config(const struct kolo_zero_config *c)
{
	const double values[NVALUES] = {
		c->stage,
		c->accumulation,
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
	};
	uint64_t hash = mix(14695981039346656037u, values, sizeof(values));

	for (int i = 0; i < c->ngroups; i++) {
		const struct kolo_zero_group *g = &c->groups[i];
		const double of_group[] = { g->lr,           g->beta1,    g->beta2,     g->eps,
					    g->weight_decay, g->momentum, g->dampening, g->lr_decay,
					    g->initial,      g->nesterov };

		hash = mix(hash, of_group, sizeof(of_group));
	}
	return hash;
}

static uint64_t hash_tensor(const struct kolo_zero_tensor *t)
{
	uint64_t hash = mix(14695981039346656037u, t->name, strlen(t->name) + 1);
	const int values[] = { t->ndims, (int)t->type, t->group, t->frozen };

	return mix(mix(hash, values, sizeof(values)), t->shape, (size_t)t->ndims * sizeof(t->shape[0]));
}

/* What a rank says of its arguments. */
struct passed {
	int64_t rc, ntensors;
	uint64_t config;
};

/* Each rank has what rank 0 has; what is wrong on one is wrong on all. */
static int compare_passed(const struct passed *all, int rank, int nranks, int rc)
{
	for (int r = 0; r < nranks && rc == 0; r++)
		if (all[r].rc < 0)
			return kolo_error_set(
				KOLO_EMISMATCH,
				"rank %d could not create its engine (%s), so rank %d has none either", r,
				kolo_strerror((int)all[r].rc), rank);
	for (int r = 1; r < nranks && rc == 0; r++) {
		if (all[r].ntensors != all[0].ntensors)
			return kolo_error_set(KOLO_EMISMATCH, "rank %d passed %lld tensors, rank 0 %lld", r,
					      (long long)all[r].ntensors, (long long)all[0].ntensors);
		if (all[r].config != all[0].config)
			return kolo_error_set(KOLO_EMISMATCH, "rank %d passed another config than rank 0", r);
	}
	return rc;
}

int zero_agree(struct kolo_comm *comm, int rc, int ntensors, const struct kolo_zero_config *config)
{
	int nranks = kolo_comm_nranks(comm), rank = kolo_comm_rank(comm);
	struct passed own = { rc, ntensors, rc == 0 && config ? hash_config(config) : 0 };
	struct passed *all = calloc((size_t)nranks, sizeof(*all));
	char text[400];
	int sent;

	if (!all)
		return kolo_error_set(KOLO_ENOMEM, "rank %d: arguments of %d ranks: out of memory", rank,
				      nranks);
	strncpy(text, kolo_last_error(), sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	sent = kolo_all_gather(comm, &own, all, sizeof(own), KOLO_U8, NULL);
	if (sent < 0)
		rc = sent;
	else if (rc < 0)
		kolo_error_set(rc, "%s", text);
	else
		rc = compare_passed(all, rank, nranks, rc);
	free(all);
	return rc;
}

int zero_agree_tensors(struct kolo_comm *comm, const struct kolo_zero_tensor *tensors, int ntensors)
{
	size_t n = (size_t)ntensors;
	uint64_t *first = calloc(2 * n, sizeof(*first)), differs = n;
	int rc;

	if (!first)
		return kolo_error_set(KOLO_ENOMEM, "hashes of %d tensors: out of memory", ntensors);
	for (size_t i = 0; i < n; i++)
		first[i] = first[n + i] = hash_tensor(&tensors[i]);
	rc = kolo_broadcast(comm, first, first, n, KOLO_U64, 0, NULL);
	for (size_t i = n; i-- > 0;)
		if (first[i] != first[n + i])
			differs = i;
	free(first);
	if (rc == 0)
		rc = kolo_all_reduce(comm, &differs, &differs, 1, KOLO_U64, KOLO_MIN, NULL);
	if (rc == 0 && differs < n)
		return kolo_error_set(
			KOLO_EMISMATCH,
			"rank %d: tensor %llu ('%s' here) has another name, shape, type or group on another rank",
			kolo_comm_rank(comm), (unsigned long long)differs, tensors[differs].name);
	return rc;
}
