/* Reports what the engine takes and sends (kolo_zero_memory_get, kolo_zero_traffic_get), beside
 * what the formulas give. P is the number of parameters, e the bytes of one or of its gradient, N
 * the number of ranks. A shard of a tensor of n elements has ceil(n / N) of them. */
#include "zero/create/report.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/guard.h"
#include "zero/core/tensor.h"
#include "zero/create/describe.h"
#include "zero/offload/disk.h"
#include "zero/offload/shards.h"
#include "zero/optim/optimizer.h"

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Bytes of a tensor at a place. A sharded tensor counts as its chunks. */
typedef size_t bytes_fn(const struct kolo_zero *z, const struct zero_tensor *t,
			enum zero_place place);

static size_t parameter_bytes(const struct kolo_zero *z, const struct zero_tensor *t,
			      enum zero_place place)
{
	size_t bytes = (t->sharded ? t->chunk : t->n) * kolo_type_size(t->type);

	(void)z;
	if (place != (t->sharded ? t->shard_place : ZERO_ON_DEVICE))
		return 0;
	return place == ZERO_IN_FILES ? zero_whole_pages(bytes) : bytes;
}

/* Elements that a rank has state for at a place. At stage 0 these are all elements. Of a parameter
 * server only rank 0 has any. */
static size_t held(const struct kolo_zero *z, const struct zero_tensor *t, enum zero_place place)
{
	bool none = !t->trained || (z->config.parameter_server && z->rank > 0);
	size_t all = none ? 0 : z->config.stage == 0 ? t->n : t->chunk;

	if (place == ZERO_ON_DEVICE)
		return all - t->offloaded.room;
	return place == z->state_place ? t->offloaded.room : 0;
}

static size_t gradient_bytes(const struct kolo_zero *z, const struct zero_tensor *t,
			     enum zero_place place)
{
	bool sums = z->config.accumulation > 1;
	size_t size = sums ? sizeof(float) : kolo_type_size(t->given_type),
	       n = held(z, t, ZERO_ON_DEVICE), micros = t->micros > 1 ? t->n * sizeof(float) : 0;

	if (!t->trained || place == ZERO_IN_FILES)
		return 0;
	if (place == ZERO_ON_HOST)
		return z->device ? t->offloaded.room * kolo_type_size(t->offloaded.grad_type) : 0;
	/* Sums are where the model computes. Without a device, so are the gradients of state in
	 * files. */
	if (zero_sums_steps(z))
		return t->n * size;
	return (sums || !z->device ? n + t->offloaded.room : n) * size + micros;
}

static size_t files_bytes(const struct kolo_zero *z, const struct zero_tensor *t, size_t states)
{
	/* All of them belong to the last tensor. */
	return t == &z->tensors[z->ntensors - 1]
		       ? z->state_blocks.nblocks * z->state_blocks.elements * states * sizeof(float)
		       : 0;
}

static size_t master_bytes(const struct kolo_zero *z, const struct zero_tensor *t,
			   enum zero_place place)
{
	bool own = t->type == KOLO_F32 && (!t->sharded || t->shard_place == ZERO_ON_DEVICE);

	if (place == ZERO_IN_FILES)
		return files_bytes(z, t, 1);
	return own && place == ZERO_ON_DEVICE ? 0 : held(z, t, place) * sizeof(float);
}

static size_t moment_bytes(const struct kolo_zero *z, const struct zero_tensor *t,
			   enum zero_place place)
{
	if (place == ZERO_IN_FILES)
		return files_bytes(
			z, t, (size_t)(z->state_blocks.states ? z->state_blocks.states - 1 : 0));
	return held(z, t, place) * sizeof(float) *
	       (size_t)zero_optimizer_moments(z->config.optimizer, &z->config.groups[t->group]);
}

static size_t sum_bytes(const struct kolo_zero *z, enum zero_place place, bytes_fn *bytes)
{
	size_t sum = 0;

	for (int i = 0; i < z->ntensors; i++)
		sum += bytes(z, &z->tensors[i], place);
	return sum;
}

static size_t staging_bytes(const struct kolo_zero *z, enum zero_place place, enum zero_kind kind)
{
	const struct zero_staging *s = place == ZERO_ON_DEVICE ? &z->downloads : &z->uploads;

	if (place == ZERO_ON_DEVICE && kind == ZERO_SUMS)
		return z->on_host ? 0 : sizeof(float);
	if (place == ZERO_IN_FILES || (place == ZERO_ON_DEVICE && kind != ZERO_STAGING))
		return 0;
	switch (kind) {
	case ZERO_STAGING: return (size_t)s->n * s->len;
	case ZERO_STATE_BLOCKS:
		return (size_t)z->state_blocks.nbuffers * z->state_blocks.buffer_len;
	case ZERO_PARAM_BUFFERS: return (size_t)z->param_buffers.n * z->param_buffers.len;
	default: return (z->nsums + 1) * sizeof(double);
	}
}

static size_t add_up_to(size_t a, size_t b, size_t most)
{
	return b < most - zero_min(a, most) ? a + b : most;
}

/* The most bytes that can be gathered at a time: what the model used at once, or the largest
 * tensor, whose values are shared at creation. To this comes what is gathered ahead, at least one
 * tensor, or kept. */
static size_t gathered_limit(const struct kolo_zero *z)
{
	size_t all = 0, largest = 0, most = 0, ahead, kept = z->config.reuse_distance ? 1 : 0;

	for (int i = 0; i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];

		if (!t->sharded)
			continue;
		all += t->region.len;
		most = zero_max(most, t->n);
		largest = zero_max(largest, t->region.len);
	}
	ahead = z->config.overlap && z->config.prefetch ? zero_max(z->config.prefetch, most) : 0;
	/* The same amount is being uploaded. */
	if (z->config.offload_param.place != KOLO_ZERO_ON_DEVICE)
		ahead = add_up_to(ahead, ahead, SIZE_MAX / 8);
	/* Bytes, with the widest type, and with a page of each tensor that is not full. */
	ahead = add_up_to(ahead, z->config.reuse_distance, SIZE_MAX / 8);
	ahead = add_up_to(ahead, kept * most, SIZE_MAX / 8) * sizeof(float);
	if (ahead)
		ahead = add_up_to(ahead, (size_t)z->ntensors * 4096, SIZE_MAX / 2);
	return add_up_to(zero_max(z->most_used, largest), ahead, all);
}

/* The formula of a kind, as text, by stage. */
static const char *formula_of(const struct kolo_zero *z, enum zero_kind kind)
{
	bool shards = z->config.stage > 0, sums = z->config.accumulation > 1;
	bool micros = z->config.micros > 1;

	switch (kind) {
	case ZERO_PARAMETERS: return z->config.stage == 3 ? "e P / N" : "e P";
	case ZERO_GRADIENTS:
		if (z->config.stage >= 2 && sums)
			return micros ? "4 P / N + 4 P" : "4 P / N";
		if (shards && !sums)
			return micros ? "e P / N + 4 P" : "e P / N";
		return sums ? "4 P" : micros ? "e P + 4 P" : "e P";
	case ZERO_MASTERS: return shards ? "4 P / N where e < 4" : "4 P where e < 4";
	case ZERO_MOMENTS: return shards ? "4 M P / N, M moments" : "4 M P, M moments";
	case ZERO_BUCKETS: return "buffers times the largest bucket, of reductions and of gathers";
	case ZERO_GATHERED:
		return "at most what the model used at a time, and what is gathered ahead or kept";
	case ZERO_SUMS: return z->on_host ? "16 P / (4096 N)" : "32 P / (4096 N)";
	default: return "buffers times the longest piece";
	}
}

/* The bytes of a kind at a place by the formula. */
static size_t expected_at(const struct kolo_zero *z, enum zero_place place, enum zero_kind kind)
{
	static bytes_fn *const bytes[ZERO_NKINDS] = {
		[ZERO_PARAMETERS] = parameter_bytes,
		[ZERO_GRADIENTS] = gradient_bytes,
		[ZERO_MASTERS] = master_bytes,
		[ZERO_MOMENTS] = moment_bytes,
	};

	if (bytes[kind])
		return sum_bytes(z, place, bytes[kind]);
	switch (kind) {
	case ZERO_BUCKETS: return place == ZERO_ON_DEVICE ? zero_bucket_bytes(z) : 0;
	case ZERO_GATHERED: return place == ZERO_ON_DEVICE ? gathered_limit(z) : 0;
	default: return staging_bytes(z, place, kind);
	}
}

/* Whether a kind is reported: some kinds always are, the others if they have bytes. Sums are
 * reported only if there is a device. */
static bool is_told(const struct kolo_zero *z, enum zero_place place, enum zero_kind kind)
{
	if (kind == ZERO_SUMS && !z->device)
		return false;
	return (place == ZERO_ON_DEVICE && kind <= ZERO_GATHERED) ||
	       z->arenas[place][kind].used > 0;
}

static const char *place_name(const struct kolo_zero *z, enum zero_place place)
{
	return place == ZERO_IN_FILES                 ? "nvme"
	       : place == ZERO_ON_DEVICE && z->device ? "device"
						      : "host";
}

static void tell(const struct kolo_zero *z, enum zero_place place, enum zero_kind kind,
		 struct kolo_zero_memory *out)
{
	*out = (struct kolo_zero_memory){
		.kind = zero_kind_name(kind),
		.place = place_name(z, place),
		.formula = formula_of(z, kind),
		.bytes = z->arenas[place][kind].used,
		.pinned = z->arenas[place][kind].pinned,
		.expected = expected_at(z, place, kind),
	};
	if (place == ZERO_ON_DEVICE && kind == ZERO_PARAMETERS)
		out->bytes += z->user_bytes;
	if (place == ZERO_ON_DEVICE && kind == ZERO_BUCKETS)
		out->bytes += z->extra_buckets;
	/* A plan has no memory: it reports what there would be. */
	if (place == ZERO_ON_HOST && !z->arenas[place][kind].base && zero_is_pinned(z, kind))
		out->pinned = zero_whole_pages(out->expected);
	out->peak = out->bytes;
	if (place == ZERO_ON_DEVICE && kind == ZERO_GATHERED) {
		out->bytes = z->gathered + z->spare;
		out->peak = z->most_gathered;
	}
}

int kolo_zero_memory_get(const struct kolo_zero *z, int index, struct kolo_zero_memory *out)
{
	int row = 0;

	for (int place = 0; z && out && place < ZERO_NPLACES; place++)
		for (int kind = 0; kind < ZERO_NKINDS; kind++) {
			if (!is_told(z, (enum zero_place)place, (enum zero_kind)kind) ||
			    row++ != index)
				continue;
			tell(z, (enum zero_place)place, (enum zero_kind)kind, out);
			return 0;
		}
	return kolo_error_set(KOLO_EINVAL, "memory of kind %d; there are 0 to %d", index, row - 1);
}

/* ---- Traffic --------------------------------------------------------------------------------- */

void zero_files_counts(const struct kolo_zero *z, uint64_t *read_bytes, uint64_t *written_bytes)
{
	const struct zero_disk *disks[] = { z->state_blocks.disk, z->param_buffers.disk };

	*read_bytes = *written_bytes = 0;
	for (int i = 0; i < 2; i++) {
		uint64_t read = 0, written = 0;

		if (disks[i])
			zero_disk_counts(disks[i], &read, &written);
		*read_bytes += read;
		*written_bytes += written;
	}
	*read_bytes -= z->read_before;
	*written_bytes -= z->written_before;
}

int zero_count_sent(const struct kolo_zero *z, uint64_t *out)
{
	struct kolo_stats stats, apart = { 0 };
	int rc = kolo_comm_stats(z->data, &stats);

	if (rc == 0 && z->reducer.apart)
		rc = kolo_comm_stats(z->reducer.comm, &apart);
	*out = rc == 0 ? stats.sent_bytes + apart.sent_bytes : 0;
	return rc;
}

int kolo_zero_traffic_get(struct kolo_zero *z, struct kolo_zero_traffic *out)
{
	uint64_t sent;
	int rc = zero_check(z);

	if (rc < 0)
		return rc;
	if (!out || z->phase != ZERO_IDLE)
		return kolo_error_set(KOLO_EINVAL, "rank %d: traffic in a micro-step, or into NULL",
				      z->rank);
	if ((rc = zero_param_buffers_forget(z)) < 0 || (rc = zero_count_sent(z, &sent)) < 0)
		return zero_failed(z, rc);
	*out = z->traffic;
	out->sent_bytes = sent - z->sent_before;
	out->down_bytes = z->down_bytes;
	out->up_bytes = z->up_bytes;
	zero_files_counts(z, &out->read_bytes, &out->written_bytes);
	return 0;
}
