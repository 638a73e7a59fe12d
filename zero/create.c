/* An engine from its tensors and its config: who has what, memory for it, the buckets, and the first values. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

enum {
	/* Tensors of at least so many elements have operations of their own, which leave results and gathered parameters where
	 * they belong; smaller ones share them, and are copied */
	WHOLE = 64 << 10,
};

void kolo_zero_config_init(struct kolo_zero_config *out)
{
	*out = (struct kolo_zero_config){
		.accumulation = 1,
		.loss_scale = 1,
		.scaling = { .initial = 65536, .min = 1, .window = 1000, .hysteresis = 2 },
		.optimizer = KOLO_ZERO_ADAMW,
		.overlap = 1,
		.reduce_bucket = 2 << 20,
		.gather_bucket = 2 << 20,
		.contiguous = 1,
		.reduce_scatter = 1,
		.allgather = 1,
		.prefetch = 4 << 20,
		.max_live = (size_t)1 << 30,
	};
}

/* ---- Tensors -------------------------------------------------------------------------------------------- */

static size_t count_elements(const struct kolo_zero_tensor *t)
{
	size_t n = 1;

	for (int d = 0; d < t->ndims; d++)
		n *= t->shape[d];
	return n;
}

/* Which parts of a trained tensor this rank has optimizer state and gradients for. */
static void decide_parts(const struct kolo_zero *z, struct zero_tensor *t)
{
	const struct kolo_zero_config *c = &z->config;
	struct zero_part all = { 0, t->n }, none = { 0, 0 };
	bool sums = c->stage < 2 && c->accumulation > 1; /* adds up all of it before it is reduced */

	t->held = c->stage > 0 ? t->own : c->parameter_server && z->rank > 0 ? none : all;
	t->grad_held = sums ? all : t->held;
	t->grad_type = c->accumulation > 1 ? KOLO_F32 : t->type;
}

static int init_tensor(struct kolo_zero *z, struct zero_tensor *t, const struct kolo_zero_tensor *from)
{
	t->name = malloc(strlen(from->name) + 1);
	if (!t->name)
		return kolo_error_set(KOLO_ENOMEM, "name of tensor '%s': out of memory", from->name);
	strcpy(t->name, from->name);
	t->type = from->type;
	t->ndims = from->ndims;
	memcpy(t->shape, from->shape, sizeof(t->shape));
	t->n = count_elements(from);
	t->chunk = zero_chunk(t->n, z->nranks);
	t->own = zero_owned(t->n, z->nranks, z->rank);
	t->group = from->group;
	t->trained = !from->frozen;
	t->sharded = z->config.stage == 3 && t->n > z->config.persistence;
	if (t->trained)
		decide_parts(z, t);
	if (z->config.stage < 3 && from->data) {
		t->param = from->data;
		t->in_user = true;
		z->user_bytes += t->n * kolo_type_size(t->type);
	}
	if (!t->sharded)
		return 0;
	if (z->queue && kolo_event_create(&t->gathered) < 0)
		return KOLO_ENOMEM;
	return zero_region_reserve(&t->region, t->n * kolo_type_size(t->type), t->name);
}

static int init_tensors(struct kolo_zero *z, const struct kolo_zero_tensor *from, int n)
{
	int rc = 0;

	z->tensors = calloc((size_t)n, sizeof(*z->tensors));
	if (!z->tensors)
		return kolo_error_set(KOLO_ENOMEM, "%d tensors: out of memory", n);
	z->ntensors = n;
	for (int i = 0; rc == 0 && i < n; i++)
		rc = init_tensor(z, &z->tensors[i], &from[i]);
	return rc;
}

/* ---- Buckets -------------------------------------------------------------------------------------------- */

static size_t max_size(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Elements of each rank in a bucket of so many. */
static size_t share(const struct kolo_zero *z, size_t bucket)
{
	return max_size(bucket / (size_t)z->nranks, 1);
}

/* Buffers begin with a line of the cache. */
static size_t whole_lines(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* What travels alone, and what shares buckets, by type: those of one family stand together, so that what comes between small
 * tensors does not close their bucket. */
enum { LARGE, SMALL_F32, SMALL_F16, SMALL_BF16, NFAMILIES };

static int family_of(const struct zero_tensor *t, size_t alone)
{
	return t->chunk >= alone     ? LARGE
	       : t->type == KOLO_F32 ? SMALL_F32
	       : t->type == KOLO_F16 ? SMALL_F16
				     : SMALL_BF16;
}

/* Adds the tensors of a family that are trained, but not sharded ones unless asked for; from the first to the last or back. */
static int add_family(const struct kolo_zero *z, struct zero_item *items, int n, int family, size_t alone,
		      bool sharded, bool backwards)
{
	for (int k = 0; k < z->ntensors; k++) {
		int i = backwards ? z->ntensors - 1 - k : k;
		const struct zero_tensor *t = &z->tensors[i];

		if (t->trained && (sharded || !t->sharded) && family_of(t, alone) == family)
			items[n++] = (struct zero_item){ i, t->chunk, t->type };
	}
	return n;
}

/* Reductions in the reverse order of the tensors, in which backward makes gradients; small ones last, when all have come. */
static int plan_reductions(struct kolo_zero *z, struct zero_item *items)
{
	struct zero_reducer *r = &z->reducer;
	size_t alone = z->config.contiguous ? share(z, WHOLE) : 1;
	int n = 0, open = 0, before, rc;

	for (int family = 0; family < NFAMILIES; family++) {
		before = n;
		n = add_family(z, items, n, family, alone, true, true);
		/* One that is filled, and with overlap while another one is reduced; those of small tensors stay open. */
		open += n == before ? 0 : family == LARGE && z->queue ? 2 : 1;
	}
	rc = zero_plan_make(&r->plan, items, n, share(z, z->config.reduce_bucket), alone);
	for (int p = r->plan.npieces; rc == 0 && p-- > 0;) {
		struct zero_tensor *t = &z->tensors[r->plan.pieces[p].tensor];

		t->first_piece = p;
		t->npieces++;
	}
	r->buffer_len = whole_lines((size_t)z->nranks * r->plan.largest);
	r->nplanned = z->queue && open < 2 ? 2 : open;
	if (r->nplanned > r->plan.nbuckets)
		r->nplanned = r->plan.nbuckets;
	return rc;
}

/* Gathers of all that is trained and whole on every rank, and owned by one; small ones, that others would wait for, first. */
static int plan_gathers(struct kolo_zero *z, struct zero_item *items)
{
	struct zero_gatherer *g = &z->gatherer;
	size_t limit = share(z, z->config.gather_bucket), alone = share(z, WHOLE);
	int n = 0, rc;

	if (z->config.sub_group && z->config.sub_group < limit)
		limit = z->config.sub_group;
	for (int family = NFAMILIES; z->config.stage > 0 && family-- > 0;)
		n = add_family(z, items, n, family, alone, false, false);
	rc = zero_plan_make(&g->plan, items, n, limit, alone);
	g->buffer_len = whole_lines((size_t)z->nranks * g->plan.largest_partial);
	g->nbuffers = g->buffer_len == 0 ? 0 : z->queue ? 2 : 1;
	return rc;
}

static int plan_buckets(struct kolo_zero *z)
{
	struct zero_item *items = calloc((size_t)z->ntensors, sizeof(*items));
	int rc = items ? plan_reductions(z, items)
		       : kolo_error_set(KOLO_ENOMEM, "plans of %d tensors: out of memory", z->ntensors);

	if (rc == 0)
		rc = plan_gathers(z, items);
	free(items);
	return rc;
}

/* ---- Memory --------------------------------------------------------------------------------------------- */

/* Elements to have memory for: own parts are as long on all ranks, so that all need the same. */
static size_t room(const struct zero_tensor *t, struct zero_part part)
{
	return part.n == t->n && part.first == 0                  ? t->n
	       : part.first == t->own.first && part.n == t->own.n ? t->chunk
								  : 0;
}

/* A tensor's parts of the arenas, of types with elements of `size` bytes. */
static void take_memory(struct kolo_zero *z, struct zero_tensor *t, size_t size)
{
	size_t held = t->trained ? room(t, t->held) : 0, own = kolo_type_size(t->type);
	int moments = zero_optimizer_moments(z->config.optimizer, &z->config.groups[t->group]);

	if (own == size && t->sharded)
		t->shard = zero_arena_take(&z->arenas[ZERO_PARAMETERS], t->chunk * size);
	else if (own == size && !t->in_user)
		t->param = zero_arena_take(&z->arenas[ZERO_PARAMETERS], t->n * size);
	if (t->sharded)
		t->param = t->region.base;
	if (t->trained && kolo_type_size(t->grad_type) == size)
		t->grad = zero_arena_take(&z->arenas[ZERO_GRADIENTS], room(t, t->grad_held) * size);
	if (size != sizeof(float) || held == 0)
		return;
	if (t->type != KOLO_F32)
		t->master = zero_arena_take(&z->arenas[ZERO_MASTERS], held * size);
	for (int m = 0; m < moments; m++)
		t->moment[m] = zero_arena_take(&z->arenas[ZERO_MOMENTS], held * size);
}

static void take_all_memory(struct kolo_zero *z)
{
	for (size_t size = sizeof(float); size >= sizeof(uint16_t); size /= 2)
		for (int i = 0; i < z->ntensors; i++)
			take_memory(z, &z->tensors[i], size);
}

static int open_memory(struct kolo_zero *z)
{
	static const char *const kinds[ZERO_NKINDS] = { "parameters", "gradients", "master weights",
							"moments",    "buckets",   "gathered parameters" };
	int rc = 0;

	take_all_memory(z);
	z->arenas[ZERO_BUCKETS].used = zero_bucket_bytes(z);
	for (int k = 0; rc == 0 && k < ZERO_NKINDS; k++)
		rc = zero_arena_open(&z->arenas[k], kinds[k]);
	if (rc < 0)
		return rc;
	take_all_memory(z);
	rc = zero_reducer_open(z);
	return rc == 0 ? zero_gatherer_open(z) : rc;
}

/* ---- First values --------------------------------------------------------------------------------------- */

/* Masters and moments from the parameters. */
static void init_state(struct kolo_zero *z, struct zero_tensor *t)
{
	float initial = zero_optimizer_initial(z->config.optimizer, &z->config.groups[t->group]);
	const char *param = t->sharded ? t->shard : zero_at(t->param, t->type, t->held.first);

	if (t->master)
		kolo_cast(param, t->type, t->master, KOLO_F32, t->held.n, 1);
	for (size_t i = 0; t->moment[0] && initial != 0 && i < t->held.n; i++)
		t->moment[0][i] = initial;
}

/* Rank 0's values go to all; of a sharded tensor each keeps its own. */
static int share_values(struct kolo_zero *z, struct zero_tensor *t, const void *data)
{
	size_t size = kolo_type_size(t->type);
	int rc = t->sharded ? zero_params_open(z, t) : 0;

	if (rc < 0)
		return rc;
	if (!t->in_user && data && z->rank == 0)
		memcpy(t->param, data, t->n * size);
	rc = kolo_broadcast(z->data, t->param, t->param, t->n, t->type, 0, NULL);
	if (t->sharded) {
		memcpy(t->shard, t->param + t->own.first * size, t->own.n * size);
		zero_params_close(z, t);
	}
	if (rc == 0 && t->trained)
		init_state(z, t);
	return rc;
}

static int share_all_values(struct kolo_zero *z, const struct kolo_zero_tensor *from)
{
	struct kolo_stats stats;
	int rc = 0;

	for (int i = 0; rc == 0 && i < z->ntensors; i++)
		rc = share_values(z, &z->tensors[i], from[i].data);
	if (rc == 0)
		rc = kolo_comm_stats(z->data, &stats);
	if (rc == 0)
		z->sent_before = stats.sent_bytes;
	return rc;
}

/* ---- Create and destroy --------------------------------------------------------------------------------- */

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

/* All that needs no other rank. */
static int open_engine(struct kolo_zero *z, const struct kolo_zero_tensor *tensors, int ntensors)
{
	int rc = copy_groups(z);

	if (rc == 0 && z->config.overlap)
		rc = kolo_queue_create(&z->queue);
	if (rc == 0)
		rc = init_tensors(z, tensors, ntensors);
	if (rc == 0)
		rc = plan_buckets(z);
	return rc == 0 ? open_memory(z) : rc;
}

static struct kolo_zero *new_engine(struct kolo_comm *comm, const struct kolo_zero_config *config)
{
	struct kolo_zero *z = calloc(1, sizeof(*z));

	if (!z) {
		kolo_error_set(KOLO_ENOMEM, "an engine: out of memory");
		return NULL;
	}
	z->config = *config;
	z->rank = kolo_comm_rank(comm);
	z->nranks = kolo_comm_nranks(comm);
	z->kernels = zero_kernels_best();
	z->predivide = config->predivide > 0 ? config->predivide : z->nranks;
	zero_scaler_init(&z->scaler, config);
	z->asks_micro_batch = config->micro_batch == 0;
	z->culprit.tensor = -1;
	z->trace.hash = ZERO_HASH;
	return z;
}

int kolo_zero_create(struct kolo_comm *comm, const struct kolo_zero_config *config,
		     const struct kolo_zero_tensor *tensors, int ntensors, struct kolo_zero **out)
{
	struct kolo_zero *z = NULL;
	uint64_t *hashes = NULL;
	int rc;

	if (!comm || !out)
		return kolo_error_set(KOLO_EINVAL, "kolo_zero_create without a communicator, or without out");
	*out = NULL;
	rc = zero_check_arguments(config, tensors, ntensors);
	if (rc == 0)
		rc = zero_hash_tensors(tensors, ntensors, &hashes);
	rc = zero_agree(comm, rc, ntensors, config);
	if (rc == 0)
		rc = zero_agree_tensors(comm, tensors, ntensors, hashes);
	free(hashes);
	if (rc < 0)
		return rc;
	z = new_engine(comm, config);
	rc = zero_share_failure(comm, z ? open_engine(z, tensors, ntensors) : KOLO_ENOMEM);
	if (rc == 0)
		rc = kolo_comm_split(comm, 0, z->rank, &z->data);
	if (rc == 0)
		rc = kolo_comm_split(comm, 0, z->rank, &z->control);
	if (rc == 0)
		rc = share_all_values(z, tensors);
	if (rc < 0) {
		kolo_zero_destroy(z);
		return rc;
	}
	*out = z;
	return 0;
}

void kolo_zero_destroy(struct kolo_zero *z)
{
	if (!z)
		return;
	/* The caller's memory gets the last update too. */
	if (!z->failed && z->data)
		zero_gather_finish_all(z);
	kolo_queue_destroy(z->queue);
	zero_reducer_close(z);
	zero_gatherer_close(z);
	for (int i = 0; i < z->ntensors; i++) {
		kolo_event_destroy(z->tensors[i].gathered);
		zero_region_free(&z->tensors[i].region);
		free(z->tensors[i].name);
	}
	for (int k = 0; k < ZERO_NKINDS; k++)
		zero_arena_close(&z->arenas[k]);
	free(z->tensors);
	free(z->trace.tensors);
	free((void *)z->config.groups);
	kolo_comm_destroy(z->data);
	kolo_comm_destroy(z->control);
	free(z);
}
