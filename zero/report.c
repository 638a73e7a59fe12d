/* What the engine takes and sends, beside what the formulas say. P is the number of parameters, e the bytes of one in its type,
 * N the number of ranks; what is sharded is ceil(n / N) elements of each tensor of n. */
#include "zero.h"

#include <string.h>

/* ---- Memory --------------------------------------------------------------------------------------------- */

/* Bytes for all tensors of which `which` says how many for each element; those that are sharded as their chunks. */
typedef size_t bytes_fn(const struct kolo_zero *z, const struct zero_tensor *t);

static size_t parameter_bytes(const struct kolo_zero *z, const struct zero_tensor *t)
{
	(void)z;
	return (t->sharded ? t->chunk : t->n) * kolo_type_size(t->type);
}

/* What a rank has state for: all at stage 0, the parameter server's other ranks nothing. */
static size_t held(const struct kolo_zero *z, const struct zero_tensor *t)
{
	bool none = !t->trained || (z->config.parameter_server && z->rank > 0);

	return none ? 0 : z->config.stage == 0 ? t->n : t->chunk;
}

static size_t gradient_bytes(const struct kolo_zero *z, const struct zero_tensor *t)
{
	bool sums = z->config.accumulation > 1;

	if (sums && z->config.stage < 2)
		return t->trained ? t->n * sizeof(float) : 0;
	return held(z, t) * (sums ? sizeof(float) : kolo_type_size(t->type));
}

static size_t master_bytes(const struct kolo_zero *z, const struct zero_tensor *t)
{
	return t->type == KOLO_F32 ? 0 : held(z, t) * sizeof(float);
}

static size_t moment_bytes(const struct kolo_zero *z, const struct zero_tensor *t)
{
	return held(z, t) * sizeof(float) *
	       (size_t)zero_optimizer_moments(z->config.optimizer, &z->config.groups[t->group]);
}

static size_t sum_bytes(const struct kolo_zero *z, bytes_fn *bytes)
{
	size_t sum = 0;

	for (int i = 0; i < z->ntensors; i++)
		sum += bytes(z, &z->tensors[i]);
	return sum;
}

size_t zero_bucket_bytes(const struct kolo_zero *z)
{
	int nreduced = z->reducer.nplanned + z->config.parameter_server;

	return (size_t)nreduced * z->reducer.buffer_len +
	       (size_t)z->gatherer.nbuffers * z->gatherer.buffer_len;
}

static size_t add_up_to(size_t a, size_t b, size_t most)
{
	return b < most - (a < most ? a : most) ? a + b : most;
}

/* The most that can be gathered at a time: what the model used at once, or the largest, whose values are shared at creation; and
 * what is gathered ahead, at least one, or kept beside it. */
static size_t gathered_limit(const struct kolo_zero *z)
{
	size_t all = 0, largest = 0, most = 0, ahead, kept = z->config.reuse_distance ? 1 : 0;

	for (int i = 0; i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];

		if (!t->sharded)
			continue;
		all += t->region.len;
		most = t->n > most ? t->n : most;
		largest = t->region.len > largest ? t->region.len : largest;
	}
	ahead = z->queue && z->config.prefetch ? (z->config.prefetch > most ? z->config.prefetch : most) : 0;
	/* In bytes of the widest type, and with all tensors' pages that are not full. */
	ahead = add_up_to(ahead, z->config.reuse_distance, SIZE_MAX / 8);
	ahead = add_up_to(ahead, kept * most, SIZE_MAX / 8) * sizeof(float);
	if (ahead)
		ahead = add_up_to(ahead, (size_t)z->ntensors * 4096, SIZE_MAX / 2);
	return add_up_to(z->most_used > largest ? z->most_used : largest, ahead, all);
}

/* What formulas are called, by stage. */
static const char *formula_of(const struct kolo_zero *z, enum zero_kind kind)
{
	bool shards = z->config.stage > 0, sums = z->config.accumulation > 1;

	switch (kind) {
	case ZERO_PARAMETERS: return z->config.stage == 3 ? "e P / N" : "e P";
	case ZERO_GRADIENTS:
		if (z->config.stage >= 2)
			return sums ? "4 P / N" : "e P / N";
		return sums ? "4 P" : shards ? "e P / N" : "e P";
	case ZERO_MASTERS: return shards ? "4 P / N where e < 4" : "4 P where e < 4";
	case ZERO_MOMENTS: return shards ? "4 M P / N, M moments" : "4 M P, M moments";
	case ZERO_BUCKETS: return "buffers times the largest bucket, of reductions and of gathers";
	default: return "at most what the model used at a time, and what is gathered ahead or kept";
	}
}

int kolo_zero_memory_get(const struct kolo_zero *z, int index, struct kolo_zero_memory *out)
{
	static const struct {
		const char *name;
		bytes_fn *bytes;
	} kinds[ZERO_NKINDS] = {
		[ZERO_PARAMETERS] = { "parameters", parameter_bytes },
		[ZERO_GRADIENTS] = { "gradients", gradient_bytes },
		[ZERO_MASTERS] = { "master weights", master_bytes },
		[ZERO_MOMENTS] = { "moments", moment_bytes },
		[ZERO_BUCKETS] = { "buckets", NULL },
		[ZERO_GATHERED] = { "gathered", NULL },
	};

	if (!z || !out || index < 0 || index >= ZERO_NKINDS)
		return kolo_error_set(KOLO_EINVAL, "memory of kind %d; there are 0 to %d", index,
				      ZERO_NKINDS - 1);
	*out = (struct kolo_zero_memory){ .kind = kinds[index].name,
					  .formula = formula_of(z, (enum zero_kind)index),
					  .bytes = z->arenas[index].used };
	if (kinds[index].bytes)
		out->expected = sum_bytes(z, kinds[index].bytes);
	if (index == ZERO_PARAMETERS)
		out->bytes += z->user_bytes;
	if (index == ZERO_BUCKETS) {
		out->bytes += z->extra_buckets;
		out->expected = zero_bucket_bytes(z);
	}
	out->peak = out->bytes;
	if (index == ZERO_GATHERED) {
		out->bytes = z->gathered;
		out->peak = z->most_gathered;
		out->expected = gathered_limit(z);
	}
	return 0;
}

/* ---- Traffic -------------------------------------------------------------------------------------------- */

size_t zero_bucket_elements(const struct kolo_zero *z, const struct zero_plan *plan,
			    const struct zero_bucket *b)
{
	size_t n = 0;

	for (int p = b->first; p < b->first + b->npieces; p++) {
		const struct zero_piece *piece = &plan->pieces[p];

		for (int r = 0; r < z->nranks; r++)
			n += zero_part_of(z->tensors[piece->tensor].n, z->nranks, r, piece->first, piece->n)
				     .n;
	}
	return n;
}

int kolo_zero_traffic_get(struct kolo_zero *z, struct kolo_zero_traffic *out)
{
	struct kolo_stats stats;
	int rc = zero_check(z);

	if (rc < 0)
		return rc;
	if (!out || z->phase != ZERO_IDLE)
		return kolo_error_set(KOLO_EINVAL, "rank %d: traffic in a micro-step, or into NULL", z->rank);
	if ((rc = kolo_comm_stats(z->data, &stats)) < 0)
		return zero_failed(z, rc);
	*out = z->traffic;
	out->sent_bytes = stats.sent_bytes - z->sent_before;
	return 0;
}
