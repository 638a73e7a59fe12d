/* The update: norm, and one pass over gradients, masters and moments that also writes the parameters. Blocks of gradients are
 * made floats in the first-level cache, so that the pass reads and writes each byte in memory once. */
#include "zero.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1024 }; /* floats; a multiple of ZERO_LANES */

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* n gradients of a tensor from element `first` on, as floats, times factor. */
static void load_gradients(const struct zero_tensor *t, size_t first, size_t n, float factor, float *out)
{
	kolo_cast(zero_at(t->grad, t->grad_type, first - t->grad_held.first), t->grad_type, out, KOLO_F32, n,
		  factor);
}

/* ---- Norm ----------------------------------------------------------------------------------------------- */

static double square_sum_of(const struct kolo_zero *z, const struct zero_tensor *t, struct zero_part part)
{
	struct zero_lanes lanes = { { 0 } };
	float g[BLOCK];

	for (size_t at = 0; at < part.n; at += BLOCK) {
		size_t n = min_size(BLOCK, part.n - at);

		load_gradients(t, part.first + at, n, 1, g);
		z->kernels->add_squares(&lanes, g, n);
	}
	return zero_lanes_sum(&lanes);
}

/* The parts of the gradients whose squares this rank adds up: its own; of a parameter server all, the other ranks' none. */
static bool sums_part(const struct kolo_zero *z, int owner)
{
	return z->config.parameter_server ? z->rank == 0 : owner == z->rank;
}

double zero_square_sum(const struct kolo_zero *z)
{
	double sum = 0;

	for (int r = 0; r < z->nranks; r++) {
		double of_owner = 0;

		for (int i = 0; i < z->ntensors && sums_part(z, r); i++)
			if (z->tensors[i].trained)
				of_owner += square_sum_of(z, &z->tensors[i],
							  zero_owned(z->tensors[i].n, z->nranks, r));
		sum += of_owner;
	}
	return sum;
}

void zero_find_culprit(const struct kolo_zero *z, struct zero_culprit *out)
{
	for (int i = 0; i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];

		for (size_t k = 0; t->trained && k < t->grad_held.n; k++) {
			float g;

			load_gradients(t, t->grad_held.first + k, 1, 1, &g);
			if (__builtin_isfinite(g))
				continue;
			*out = (struct zero_culprit){ i, z->micro, t->grad_held.first + k, (double)g, 1 };
			return;
		}
	}
}

/* ---- Optimizer ------------------------------------------------------------------------------------------ */

/* What an update takes along. */
struct update {
	float factor;
	struct kolo_zero_scalars *groups; /* of each group */
	double *ratios;                   /* Lamb: of each tensor, the trust ratio */
};

float *zero_master_at(const struct zero_tensor *t, size_t first)
{
	if (t->master)
		return t->master + (first - t->held.first);
	if (t->sharded)
		return (float *)(void *)t->shard + (first - t->own.first);
	return (float *)(void *)t->param + first;
}

float *zero_moment_at(const struct zero_tensor *t, int moment, size_t first)
{
	return t->moment[moment] ? t->moment[moment] + (first - t->held.first) : NULL;
}

void zero_write_parameters(const struct zero_tensor *t, size_t first, size_t n)
{
	char *to = t->sharded ? zero_at(t->shard, t->type, first - t->own.first)
			      : zero_at(t->param, t->type, first);

	if (t->master)
		kolo_cast(zero_master_at(t, first), KOLO_F32, to, t->type, n, 1);
}

static void update_part(struct kolo_zero *z, int tensor, struct zero_part part, const struct update *u)
{
	const struct zero_tensor *t = &z->tensors[tensor];
	struct kolo_zero_scalars s = u->groups[t->group];
	float g[BLOCK] = { 0 };

	if (u->ratios)
		s.rate *= (float)u->ratios[tensor];
	for (size_t at = part.first; at < part.first + part.n; at += BLOCK) {
		size_t n = min_size(BLOCK, part.first + part.n - at);

		if (!u->ratios)
			load_gradients(t, at, n, u->factor, g);
		z->kernels->update[z->config.optimizer](zero_master_at(t, at), zero_moment_at(t, 0, at),
							zero_moment_at(t, 1, at), g, n, &s);
		zero_write_parameters(t, at, n);
	}
}

static int update_piece(struct kolo_zero *z, const struct zero_piece *piece, void *arg)
{
	const struct zero_tensor *t = &z->tensors[piece->tensor];

	update_part(z, piece->tensor, zero_part_of(t->n, z->nranks, z->rank, piece->first, piece->n), arg);
	return 0;
}

/* ---- Lamb ----------------------------------------------------------------------------------------------- */

/* The moments of one owner's part of a tensor; adds the squares of parameters and updates to sums[0] and sums[1]. */
static void lamb_part(struct kolo_zero *z, const struct zero_tensor *t, struct zero_part part,
		      const struct update *u, double *sums)
{
	struct zero_lanes p2 = { { 0 } }, u2 = { { 0 } };
	float g[BLOCK];

	for (size_t at = part.first; at < part.first + part.n; at += BLOCK) {
		size_t n = min_size(BLOCK, part.first + part.n - at);

		load_gradients(t, at, n, u->factor, g);
		z->kernels->lamb_moments(zero_master_at(t, at), zero_moment_at(t, 0, at),
					 zero_moment_at(t, 1, at), g, n, &u->groups[t->group], &p2, &u2);
	}
	sums[0] += zero_lanes_sum(&p2);
	sums[1] += zero_lanes_sum(&u2);
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

/* Moments of all tensors, and their trust ratios, ||p|| / ||update||; 1 where one of them is 0. */
static int lamb_ratios(struct kolo_zero *z, const struct update *u)
{
	size_t n = 2 * (size_t)z->ntensors;
	double *own = calloc(n * (size_t)(z->nranks + 2), sizeof(*own)), *all, *total;
	int rc = 0;

	if (!own)
		return kolo_error_set(KOLO_ENOMEM, "rank %d: norms of %d tensors: out of memory", z->rank,
				      z->ntensors);
	total = own + n;
	all = total + n;
	for (int i = 0; i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];

		/* Where all is held each owner's part is summed apart, as their owners do elsewhere. */
		for (int r = 0; r < z->nranks && t->trained; r++) {
			struct zero_part part = zero_owned(t->n, z->nranks, r);

			if (t->held.n == t->n && t->n > 0 && z->config.stage == 0)
				lamb_part(z, t, part, u, &total[2 * i]);
			else if (r == z->rank && t->held.n > 0)
				lamb_part(z, t, part, u, &own[2 * i]);
		}
	}
	if (z->config.stage > 0)
		rc = add_over_owners(z, own, all, total);
	for (int i = 0; i < z->ntensors; i++) {
		double p = __builtin_sqrt(total[2 * i]), update = __builtin_sqrt(total[2 * i + 1]);

		u->ratios[i] = p > 0 && update > 0 ? p / update : 1;
	}
	free(own);
	return rc;
}

/* ---- All ------------------------------------------------------------------------------------------------ */

static int update_all(struct kolo_zero *z, struct update *u)
{
	int rc = u->ratios ? lamb_ratios(z, u) : 0;

	for (int i = 0; rc == 0 && i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];

		/* The others are in the plan of gathers. */
		if (t->trained && (z->config.stage == 0 || t->sharded))
			update_part(z, i, t->held, u);
	}
	if (rc == 0)
		rc = zero_gather_updated(z, update_piece, u);
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
