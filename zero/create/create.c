/* Makes an engine (kolo_zero_create): description, memory, files, communicators, threads, and the
 * first values. kolo_zero_destroy ends it. */
#include "zero/base/basics.h"
#include "zero/base/host.h"
#include "zero/base/threads.h"
#include "zero/core/engine.h"
#include "zero/create/check.h"
#include "zero/create/describe.h"
#include "zero/create/plan.h"
#include "zero/create/report.h"
#include "zero/offload/compute.h"
#include "zero/offload/offload.h"
#include "zero/offload/regions.h"
#include "zero/offload/shards.h"
#include "zero/optim/optimizer.h"
#include "zero/step/gather.h"
#include "zero/step/gradients.h"
#include "zero/step/norm.h"
#include "zero/step/tied.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUCKET = 2 << 20 }; /* elements; include/kolo/kolo_zero.h documents it */

void kolo_zero_offload_init(struct kolo_zero_offload *out)
{
	*out = (struct kolo_zero_offload){
		.ratio = 1, .pin = 1, .buffers = 4, .buffer = 512 << 10
	};
}

void kolo_zero_config_init(struct kolo_zero_config *out)
{
	*out = (struct kolo_zero_config){
		.accumulation = 1,
		.loss_scale = 1,
		.scaling = { .initial = 65536, .min = 1, .window = 1000, .hysteresis = 2 },
		.optimizer = KOLO_ZERO_ADAMW,
		.overlap = 1,
		.reduce_bucket = BUCKET,
		.gather_bucket = BUCKET,
		.contiguous = 1,
		.reduce_scatter = 1,
		.allgather = 1,
		.prefetch = 4 << 20,
		.max_live = (size_t)1 << 30,
		.io_block = 1 << 20,
		.io_depth = 8,
	};
	kolo_zero_offload_init(&out->offload_optimizer);
	kolo_zero_offload_init(&out->offload_param);
	out->offload_param.buffers = 5;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static int pin_memory(struct kolo_zero *z)
{
	int rc = 0;

	for (int k = 0; rc == 0 && k < ZERO_NKINDS; k++)
		if (zero_is_pinned(z, (enum zero_kind)k))
			rc = zero_arena_pin(&z->arenas[ZERO_ON_HOST][k], z->device);
	return rc;
}

static int open_arenas(struct kolo_zero *z)
{
	int rc = 0;

	for (int k = 0; rc == 0 && k < ZERO_NKINDS; k++) {
		rc = zero_arena_open(&z->arenas[ZERO_ON_DEVICE][k],
				     zero_kind_name((enum zero_kind)k), z->device);
		if (rc == 0)
			rc = zero_arena_open(&z->arenas[ZERO_ON_HOST][k],
					     zero_kind_name((enum zero_kind)k), NULL);
	}
	return rc == 0 ? pin_memory(z) : rc;
}

static int open_memory(struct kolo_zero *z)
{
	struct zero_arena *sums = &z->arenas[ZERO_ON_HOST][ZERO_SUMS];
	int rc = open_arenas(z);

	if (rc < 0)
		return rc;
	zero_take_memory(z);
	z->sums = zero_arena_take(sums, z->nsums * sizeof(double));
	z->bad = zero_arena_take(sums, sizeof(double));
	z->spot = zero_arena_take(&z->arenas[ZERO_ON_DEVICE][ZERO_SUMS],
				  z->on_host ? 0 : sizeof(float));
	if ((rc = zero_norm_open(z)) < 0 || (rc = zero_reducer_open(z)) < 0 ||
	    (rc = zero_gatherer_open(z)) < 0 || (rc = zero_offload_open(z)) < 0)
		return rc;
	return zero_param_buffers_open(z);
}

static int open_tensor(struct kolo_zero *z, struct zero_tensor *t)
{
	int rc;

	if (!t->sharded)
		return 0;
	if ((rc = zero_mark_open(z, &t->gathered)) < 0)
		return rc;
	return z->device ? 0
			 : zero_region_reserve(&t->region, t->n * kolo_type_size(t->type), t->name);
}

/* Opens the passage. It is as long as the largest tensor that is gathered. */
static int open_passage(struct kolo_zero *z)
{
	size_t most = 0;

	for (int i = 0; !z->device && i < z->ntensors; i++)
		if (z->tensors[i].sharded && z->tensors[i].region.len > most)
			most = z->tensors[i].region.len;
	return most ? zero_region_reserve(&z->passage, most, "between others") : 0;
}

/* ---- First values ---------------------------------------------------------------------------- */

/* Makes masters and moments from the parameters, all of which are at `param`. */
static int init_state(struct kolo_zero *z, struct zero_tensor *t)
{
	enum { STEP = 4096 };
	float initial = zero_optimizer_initial(z->config.optimizer, &z->config.groups[t->group]);
	float values[STEP], floats[STEP];
	size_t size = kolo_type_size(t->type);
	bool masters = t->master || t->offloaded.n;
	int rc = 0;

	for (size_t done = 0, n; rc == 0 && done < t->held.n; done += n) {
		struct zero_part part = { t->held.first + done, 0 };

		n = part.n = zero_min(t->held.n - done, STEP);
		if (masters) {
			rc = zero_download_now(z, values, t->param + part.first * size, n * size);
			kolo_cast(values, t->type, floats, KOLO_F32, n, 1);
		}
		if (rc == 0 && masters)
			rc = zero_state_put(z, t, 0, part, floats);
		for (size_t i = 0; i < n; i++)
			floats[i] = initial;
		if (rc == 0 && initial != 0)
			rc = zero_state_put(z, t, 1, part, floats);
	}
	return rc;
}

/* Keeps the own part of what was gathered. */
static int keep_shard(struct kolo_zero *z, int tensor)
{
	struct zero_tensor *t = &z->tensors[tensor];
	const char *own = t->param + t->own.first * kolo_type_size(t->type);
	size_t bytes = t->own.n * kolo_type_size(t->type);
	int rc = zero_shard_begin(z, tensor);

	if (rc == 0 && t->shard_place == ZERO_ON_DEVICE) {
		rc = zero_compute_copy(z, own, t->type, t->shard, t->own.n);
		return rc == 0 ? zero_compute_wait(z) : rc;
	}
	if (rc == 0)
		rc = zero_download_now(z, t->shard, own, bytes);
	return rc == 0 ? zero_shard_end(z, tensor) : rc;
}

/* Sends rank 0's values to all ranks. Of a sharded tensor each rank keeps its own part. */
static int share_values(struct kolo_zero *z, int tensor, const void *data)
{
	struct zero_tensor *t = &z->tensors[tensor];
	int rc = t->sharded ? zero_gathered_open(z, t) : 0;

	if (rc < 0)
		return rc;
	if (!t->in_user && data && z->rank == 0)
		rc = zero_upload_now(z, t->param, data, t->n * kolo_type_size(t->type));
	if (rc == 0)
		rc = zero_queue_done(z, kolo_broadcast(z->data, t->param, t->param, t->n, t->type,
						       0, zero_queue_now(z)));
	if (rc == 0 && t->sharded)
		rc = keep_shard(z, tensor);
	if (rc == 0 && t->trained)
		rc = init_state(z, t);
	if (t->sharded)
		zero_gathered_close(z, t);
	return rc;
}

static int share_all_values(struct kolo_zero *z, const struct kolo_zero_tensor *from)
{
	uint64_t read, written;
	int rc = 0;

	for (int i = 0; rc == 0 && i < z->ntensors; i++)
		rc = share_values(z, i, from[i].data);
	if (rc == 0) /* ends writes to files here, so they count as part of the creation */
		rc = zero_param_buffers_forget(z);
	if (rc == 0)
		rc = zero_count_sent(z, &z->sent_before);
	zero_files_counts(z, &read, &written);
	z->read_before = read;
	z->written_before = written;
	z->times = (struct kolo_zero_times){ 0 };
	return rc;
}

/* Shares the first values. Ranks wait for each other here, so a rank that fails aborts, and reports
 * why. */
static int share_first_values(struct kolo_zero *z, const struct kolo_zero_tensor *from)
{
	int rc = share_all_values(z, from), told;

	if (rc < 0) {
		snprintf(z->failure, sizeof(z->failure), "%s", kolo_last_error());
		kolo_comm_abort(z->data);
		kolo_error_set(rc, "%s", z->failure);
	}
	told = zero_share_failure(z->control, rc == KOLO_EABORTED ? 0 : rc);
	return told < 0 ? told : rc;
}

/* ---- The host -------------------------------------------------------------------------------- */

/* Finds how much memory the host has, and how much its other ranks need. All ranks look before any
 * of them takes memory. */
static int look_at_host(struct kolo_comm *comm, const struct kolo_zero *z, size_t *available,
			size_t *others)
{
	struct need {
		uint64_t host, bytes;
	} own = { zero_hash_host(), zero_plan_host_bytes(z) },
	  *all = calloc((size_t)z->nranks, sizeof(*all));
	int rc = all ? 0
		     : kolo_error_set(KOLO_ENOMEM, "needs of %d ranks: out of memory", z->nranks);

	*available = zero_plan_available();
	*others = 0;
	rc = zero_share_failure(comm, rc);
	if (rc == 0)
		rc = kolo_all_gather(comm, &own, all, 2, KOLO_U64, NULL);
	for (int r = 0; rc == 0 && r < z->nranks; r++)
		if (r != z->rank && all[r].host == own.host)
			*others += all[r].bytes;
	free(all);
	return rc;
}

/* ---- Create and destroy ---------------------------------------------------------------------- */

static int open_queue(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	int rc;

	if (!z->config.overlap)
		return 0;
	rc = z->device ? z->device->ops->queue(z->device, &z->queue) : kolo_queue_create(&z->queue);
	r->queue = z->queue;
	r->apart = z->config.stage == 3 && z->on_host && z->nranks > 1;
	return rc == 0 && r->apart ? kolo_queue_create(&r->queue) : rc;
}

static int open_comms(struct kolo_comm *comm, struct kolo_zero *z)
{
	const char *order = z->config.order;
	int rc = kolo_comm_split_order(comm, 0, z->rank, order, &z->data);

	if (!z->reducer.apart)
		z->reducer.comm = z->data;
	else if (rc == 0)
		rc = kolo_comm_split_order(comm, 0, z->rank, order, &z->reducer.comm);
	return rc == 0 ? kolo_comm_split_order(comm, 0, z->rank, order, &z->control) : rc;
}

/* Opens everything that needs no other rank. */
static int open_engine(struct kolo_zero *z, size_t available, size_t others)
{
	int rc = zero_plan_fits(z, available, others);

	if (rc == 0)
		rc = open_queue(z);
	z->spares = rc == 0 ? calloc((size_t)z->ntensors, sizeof(*z->spares)) : NULL;
	if (rc == 0 && !z->spares)
		rc = kolo_error_set(KOLO_ENOMEM, "an engine of %d tensors: out of memory",
				    z->ntensors);
	for (int i = 0; rc == 0 && i < z->ntensors; i++)
		rc = open_tensor(z, &z->tensors[i]);
	if (rc == 0)
		rc = open_passage(z);
	return rc == 0 ? open_memory(z) : rc;
}

/* The hash of this host and of the processors that the rank may run on. */
static uint64_t hash_cores(void)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	sched_getaffinity(0, sizeof(cpus), &cpus);
	return zero_hash(zero_hash_host(), &cpus, sizeof(cpus));
}

/* Opens threads: as many as there are cores, divided by the ranks that have the same cores. */
static int open_threads(struct kolo_zero *z)
{
	size_t own = hash_cores(), *all = z->gatherer.counts;
	int sharing = 0;
	int rc = kolo_all_gather(z->control, &own, all, 1, KOLO_U64, NULL);

	for (int r = 0; r < z->nranks; r++)
		sharing += all[r] == own;
	return rc == 0 ? zero_threads_open(z->config.threads, sharing, &z->threads) : rc;
}

static int describe(struct kolo_comm *comm, const struct kolo_zero_config *config,
		    const struct kolo_zero_tensor *tensors, int ntensors, struct kolo_zero **out)
{
	struct kolo_zero_traffic uses;
	int rc;

	*out = calloc(1, sizeof(**out));
	if (!*out)
		return kolo_error_set(KOLO_ENOMEM, "an engine: out of memory");
	rc = zero_describe(*out, config, tensors, ntensors, kolo_comm_rank(comm),
			   kolo_comm_nranks(comm));
	if (rc == 0)
		rc = zero_plan_uses(*out, &uses);
	if (rc == 0)
		zero_plan_warn(*out);
	return rc;
}

/* Destroys what was made so far, and keeps the error's text. */
static int give_up(struct kolo_zero *z, int rc)
{
	char text[sizeof(z->failure)];

	snprintf(text, sizeof(text), "%s", kolo_last_error());
	kolo_zero_destroy(z);
	return kolo_error_set(rc, "%s", text);
}

/* Makes an engine among the ranks of comm. */
static int create(struct kolo_comm *comm, const struct kolo_zero_config *config,
		  const struct kolo_zero_tensor *tensors, int ntensors, struct kolo_zero **out)
{
	struct kolo_zero *z = NULL;
	uint64_t *hashes = NULL;
	size_t available, others;
	int rc = zero_check_arguments(config, tensors, ntensors);

	if (rc == 0)
		rc = zero_hash_tensors(tensors, ntensors, &hashes);
	rc = zero_agree(comm, rc, ntensors, config);
	if (rc == 0)
		rc = zero_agree_tensors(comm, tensors, ntensors, hashes);
	free(hashes);
	if (rc < 0)
		return rc;
	rc = zero_share_failure(comm, describe(comm, config, tensors, ntensors, &z));
	if (rc == 0)
		rc = look_at_host(comm, z, &available, &others);
	if (rc == 0)
		rc = zero_share_failure(comm, open_engine(z, available, others));
	if (rc == 0)
		rc = open_comms(comm, z);
	if (rc == 0)
		rc = zero_share_failure(z->control, open_threads(z));
	if (rc == 0)
		rc = share_first_values(z, tensors);
	if (rc < 0)
		return give_up(z, rc);
	*out = z;
	return 0;
}

/* Joins the engines that train one model. z is NULL if this one could not be made: then no other
 * one is, either. */
static int join_world(struct kolo_comm *world, int rc, struct kolo_zero *z)
{
	rc = zero_share_failure(world, rc);
	if (rc == 0)
		rc = kolo_comm_split(world, 0, kolo_comm_rank(world), &z->world);
	if (rc < 0)
		return rc;
	z->family = kolo_comm_rank(world);
	rc = kolo_broadcast(z->control, &z->family, &z->family, 1, KOLO_I64, 0, NULL);
	if (rc == 0 && z->config.tied)
		rc = zero_tied_compare(z);
	return zero_share_failure(z->world, rc);
}

int kolo_zero_create(struct kolo_comm *comm, const struct kolo_zero_config *config,
		     const struct kolo_zero_tensor *tensors, int ntensors, struct kolo_zero **out)
{
	struct kolo_zero *z = NULL;
	int rc;

	if (!comm || !out)
		return kolo_error_set(KOLO_EINVAL,
				      "kolo_zero_create without a communicator, or without out");
	*out = NULL;
	rc = create(comm, config, tensors, ntensors, &z);
	if (config && config->world)
		rc = join_world(config->world, rc, z);
	if (rc < 0)
		return z ? give_up(z, rc) : rc;
	z->keeps = true; /* not before: the first values need zeroed memory */
	if (z->rank == 0 && *z->warning)
		kolo_comm_log(comm, KOLO_LOG_WARN, z->warning);
	*out = z;
	return 0;
}

void kolo_zero_destroy(struct kolo_zero *z)
{
	if (!z)
		return;
	/* The caller's memory must have the last update too. */
	if (!z->failed && z->data)
		zero_gather_finish_all(z);
	/* No copy may be under way to memory that is freed. */
	zero_upload_wait(z, z->last_upload);
	zero_download_wait(z, z->last_download);
	if (z->queue)
		zero_queue_done(z, 0);
	kolo_queue_destroy(z->queue);
	if (z->reducer.apart)
		kolo_queue_destroy(z->reducer.queue);
	zero_compute_wait(z);
	zero_reducer_close(z);
	zero_gatherer_close(z);
	zero_offload_close(z);
	zero_param_buffers_close(z);
	for (int i = 0; i < z->ntensors; i++) {
		zero_mark_close(&z->tensors[i].gathered);
		if (z->tensors[i].state != ZERO_GONE)
			zero_gathered_close(z, &z->tensors[i]);
	}
	zero_spares_close(z);
	for (int i = 0; !z->device && i < z->ntensors; i++)
		zero_region_free(&z->tensors[i].region);
	zero_region_free(&z->passage);
	for (int k = 0; k < ZERO_NKINDS; k++) {
		zero_arena_close(&z->arenas[ZERO_ON_DEVICE][k]);
		zero_arena_close(&z->arenas[ZERO_ON_HOST][k]);
	}
	zero_threads_close(z->threads);
	free(z->trace.tensors);
	kolo_comm_destroy(z->data);
	if (z->reducer.apart)
		kolo_comm_destroy(z->reducer.comm);
	kolo_comm_destroy(z->control);
	kolo_comm_destroy(z->world);
	zero_undescribe(z);
	free(z);
}
