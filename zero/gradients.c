/* Gradients: from the model into buckets, buckets reduced over the ranks, and the results stored.
 *
 * Which piece of which tensor is in which bucket is fixed by the plan. So gradients may come in any order, another one on each
 * rank: a bucket is reduced when it and all before it are full, and ranks reduce the same buckets one after the other.
 *
 * A gradient's weight is its rank's share of the samples, samples / (micro_batch nranks); what that leaves to divide by, the
 * number of samples of all ranks, is known at the end of the update only and part of its factor (update.c). */
#include "zero.h"

#include <stdlib.h>
#include <string.h>

/* ---- Buffers -------------------------------------------------------------------------------------------- */

static int open_buffer(struct kolo_zero *z, struct zero_buffer *b, char *memory)
{
	b->memory = memory;
	b->bucket = -1;
	return z->queue ? kolo_event_create(&b->event) : 0;
}

int zero_reducer_open(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	size_t n = (size_t)r->plan.nbuckets + 1;
	int rc = 0;

	r->missing = calloc(n, sizeof(*r->missing));
	r->buffer_of = calloc(n, sizeof(*r->buffer_of));
	r->buffers = calloc((size_t)r->nplanned + 1, sizeof(*r->buffers));
	if (!r->missing || !r->buffer_of || !r->buffers)
		return kolo_error_set(KOLO_ENOMEM, "%d buckets: out of memory", r->plan.nbuckets);
	for (; r->nbuffers < r->nplanned && rc == 0; r->nbuffers++)
		rc = open_buffer(z, &r->buffers[r->nbuffers],
				 zero_arena_take(&z->arenas[ZERO_BUCKETS], r->buffer_len));
	if (z->config.parameter_server)
		r->incoming = zero_arena_take(&z->arenas[ZERO_BUCKETS], r->buffer_len);
	return rc;
}

void zero_reducer_close(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;

	for (int i = 0; i < r->nbuffers; i++) {
		kolo_event_destroy(r->buffers[i].event);
		if (i >= r->nplanned)
			free(r->buffers[i].memory);
	}
	free(r->buffers);
	free(r->missing);
	free(r->buffer_of);
	zero_plan_free(&r->plan);
}

void zero_reducer_begin(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;

	for (int b = 0; b < r->plan.nbuckets; b++) {
		r->missing[b] = r->plan.buckets[b].npieces;
		r->buffer_of[b] = -1;
	}
	r->started = r->stored = 0;
	for (int i = 0; i < z->ntensors; i++)
		z->tensors[i].reported = false;
}

/* ---- Results -------------------------------------------------------------------------------------------- */

/* n reduced elements of tensor t from `first` on become its gradient, or are added to it. */
static void store_part(struct kolo_zero *z, struct zero_tensor *t, struct zero_part part, const char *from)
{
	size_t size = kolo_type_size(t->type);
	char *to = zero_at(t->grad, t->grad_type, part.first - t->grad_held.first);
	float sum[512];

	/* Where ranks reduce only once for an update they have added up before. */
	if (z->micro == 0 || z->config.stage < 2) {
		kolo_cast(from, t->type, to, t->grad_type, part.n, 1);
		return;
	}
	for (size_t at = 0; at < part.n; at += sizeof(sum) / sizeof(sum[0])) {
		size_t n = part.n - at < sizeof(sum) / sizeof(sum[0]) ? part.n - at
								      : sizeof(sum) / sizeof(sum[0]);

		kolo_cast(from + at * size, t->type, sum, KOLO_F32, n, 1);
		z->kernels->add((float *)(void *)to + at, sum, n);
	}
}

/* The ranks whose parts of a bucket this rank keeps: all at stage 0, the parameter server's other ranks none. */
static bool keeps(const struct kolo_zero *z, int owner)
{
	if (z->config.parameter_server)
		return z->rank == 0;
	return z->config.stage == 0 || owner == z->rank;
}

/* Where a reduction leaves what this rank keeps at once: the gradient of the one tensor in the bucket. NULL: it has to be
 * stored, for there are several tensors, padding, sums to add it to, or parts that are not kept. */
static char *destination(const struct kolo_zero *z, const struct zero_bucket *b)
{
	const struct zero_tensor *t = &z->tensors[z->reducer.plan.pieces[b->first].tensor];
	bool same_parts = z->config.stage == 0 || z->config.reduce_scatter;

	if (!b->whole || t->chunk * (size_t)z->nranks != t->n || z->config.accumulation > 1 || !same_parts ||
	    z->config.parameter_server)
		return NULL;
	return t->grad;
}

static void store_bucket(struct kolo_zero *z, const struct zero_bucket *b, const char *memory)
{
	if (destination(z, b))
		return;
	for (int p = b->first; p < b->first + b->npieces; p++) {
		const struct zero_piece *piece = &z->reducer.plan.pieces[p];
		struct zero_tensor *t = &z->tensors[piece->tensor];

		for (int r = 0; r < z->nranks; r++) {
			size_t at = ((size_t)r * b->n + piece->at) * kolo_type_size(b->type);

			if (keeps(z, r))
				store_part(z, t, zero_part_of(t->n, z->nranks, r, piece->first, piece->n),
					   memory + at);
		}
	}
}

/* Waits for the oldest bucket that was started, stores it and frees its buffer. */
static int store_oldest(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	struct zero_buffer *buffer = &r->buffers[r->buffer_of[r->stored]];
	double began = zero_now();
	int rc = z->queue ? kolo_event_wait(buffer->event) : 0;

	z->times.reduce += zero_now() - began;
	if (rc < 0)
		return rc;
	store_bucket(z, &r->plan.buckets[r->stored], buffer->memory);
	buffer->bucket = -1;
	r->stored++;
	return 0;
}

/* ---- Reduction ------------------------------------------------------------------------------------------ */

static void count_reduction(struct kolo_zero *z, const struct zero_bucket *b, bool both_ways)
{
	size_t size = kolo_type_size(b->type), real = zero_bucket_elements(z, &z->reducer.plan, b);
	uint64_t once = (uint64_t)(z->nranks - 1) * b->n * size;

	z->traffic.reductions++;
	z->traffic.gradient_bytes += both_ways ? 2 * once : once;
	/* Of all ranks' padding each sends its share of (N-1)/N, in each direction. */
	z->traffic.padding_bytes += (both_ways ? 2 : 1) * ((size_t)z->nranks * b->n - real) * size *
				    (uint64_t)(z->nranks - 1) / (uint64_t)z->nranks;
}

static int reduce(struct kolo_zero *z, const struct zero_bucket *b, char *memory)
{
	char *own = zero_at(memory, b->type, (size_t)z->rank * b->n), *to = destination(z, b);
	bool scatter = z->config.stage > 0 && z->config.reduce_scatter;

	if (z->config.parameter_server)
		return zero_server_reduce(z, b, memory);
	count_reduction(z, b, !scatter);
	if (scatter)
		return kolo_reduce_scatter(z->data, memory, to ? to : own, b->n, b->type, KOLO_SUM, z->queue);
	return kolo_all_reduce(z->data, memory, to ? to : memory, (size_t)z->nranks * b->n, b->type, KOLO_SUM,
			       z->queue);
}

/* Starts all buckets whose turn it is. Without a queue each is done then. */
static int start_full(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	int rc = 0;

	while (rc == 0 && r->started < r->plan.nbuckets && r->missing[r->started] == 0) {
		struct zero_buffer *buffer = &r->buffers[r->buffer_of[r->started]];
		double began = zero_now();

		rc = reduce(z, &r->plan.buckets[r->started], buffer->memory);
		z->times.reduce += zero_now() - began;
		if (rc == 0 && z->queue)
			rc = kolo_event_record(buffer->event, z->queue);
		if (rc == 0)
			r->started++;
		if (rc == 0 && !z->queue)
			rc = store_oldest(z);
	}
	return rc;
}

/* One more buffer: gradients come in an order that leaves more buckets open than were planned. */
static int add_buffer(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	struct zero_buffer *more = realloc(r->buffers, ((size_t)r->nbuffers + 1) * sizeof(*more));
	char *memory = malloc(r->buffer_len);

	if (more)
		r->buffers = more;
	if (!more || !memory) {
		free(memory);
		return kolo_error_set(KOLO_ENOMEM, "rank %d: %zu bytes for bucket buffer %d: out of memory",
				      z->rank, r->buffer_len, r->nbuffers + 1);
	}
	z->extra_buckets += r->buffer_len;
	more[r->nbuffers] = (struct zero_buffer){ 0 };
	return open_buffer(z, &more[r->nbuffers++], memory);
}

/* Gives a bucket a buffer: a free one, else that of the oldest, when it is done. */
static int take_buffer(struct kolo_zero *z, int bucket)
{
	struct zero_reducer *r = &z->reducer;
	int rc = 0;

	while (rc == 0) {
		for (int i = 0; i < r->nbuffers; i++) {
			if (r->buffers[i].bucket >= 0)
				continue;
			r->buffers[i].bucket = bucket;
			r->buffer_of[bucket] = i;
			return 0;
		}
		rc = r->stored < r->started ? store_oldest(z) : add_buffer(z);
	}
	return rc;
}

static bool is_finite(const struct kolo_zero *z, enum kolo_type type, const char *x, size_t n)
{
	if (type == KOLO_F32)
		return z->kernels->finite_32((const float *)(const void *)x, n);
	return z->kernels->finite_16((const uint16_t *)(const void *)x, n,
				     type == KOLO_F16 ? 0x7c00 : 0x7f80);
}

/* n elements times weight, on their way from the model or from sums; notes whether all were finite. */
static void weigh(struct kolo_zero *z, const char *src, enum kolo_type type, char *dst,
		  enum kolo_type dst_type, size_t n, float weight)
{
	enum { STEP = 2048 }; /* elements that stay in the first-level cache between the two looks at them */

	for (size_t at = 0; at < n; at += STEP) {
		size_t m = n - at < STEP ? n - at : STEP;
		const char *from = src + at * kolo_type_size(type);

		z->suspect = z->suspect || !is_finite(z, type, from, m);
		kolo_cast(from, type, dst + at * kolo_type_size(dst_type), dst_type, m, weight);
	}
}

/* Puts a tensor's elements, of type `type`, times weight, into its piece of a bucket; what reaches beyond the tensor is zero,
 * and all of it where src is NULL. */
static void fill_piece(struct kolo_zero *z, const struct zero_piece *piece, const struct zero_bucket *b,
		       char *memory, const char *src, enum kolo_type type, float weight)
{
	const struct zero_tensor *t = &z->tensors[piece->tensor];
	size_t size = kolo_type_size(b->type);

	for (int r = 0; r < z->nranks; r++) {
		struct zero_part part = zero_part_of(t->n, z->nranks, r, piece->first, piece->n);
		char *to = memory + ((size_t)r * b->n + piece->at) * size;

		if (!src)
			part.n = 0;
		if (part.n)
			weigh(z, src + part.first * kolo_type_size(type), type, to, b->type, part.n, weight);
		memset(to + part.n * size, 0, (piece->n - part.n) * size);
	}
}

static int fill_tensor(struct kolo_zero *z, struct zero_tensor *t, const void *src, enum kolo_type type,
		       float weight)
{
	struct zero_reducer *r = &z->reducer;
	int bucket = 0, rc = 0;

	for (int p = t->first_piece; rc == 0 && p < t->first_piece + t->npieces; p++) {
		while (p >= r->plan.buckets[bucket].first + r->plan.buckets[bucket].npieces)
			bucket++;
		if (r->buffer_of[bucket] < 0)
			rc = take_buffer(z, bucket);
		if (rc < 0)
			return rc;
		fill_piece(z, &r->plan.pieces[p], &r->plan.buckets[bucket],
			   r->buffers[r->buffer_of[bucket]].memory, src, type, weight);
		r->missing[bucket]--;
		rc = start_full(z);
	}
	return rc;
}

/* What sums of micro-steps are multiplied with before ranks add them in the tensor's type, so that they need no more room than
 * the gradient of one. The update takes it into account. */
static float sum_weight(const struct kolo_zero *z)
{
	return 1.0f / (float)z->config.accumulation;
}

/* What a tensor without a gradient in this micro-step gives to its buckets: zeros, or what was summed before. */
static int fill_without(struct kolo_zero *z, struct zero_tensor *t)
{
	t->reported = true;
	return zero_reduces_now(z)
		       ? fill_tensor(z, t, t->summed ? t->grad : NULL, t->grad_type, sum_weight(z))
		       : 0;
}

int zero_reducer_finish(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	int rc = 0;

	/* In the plan's order, so that buckets become full one after the other. */
	for (int p = 0; rc == 0 && p < r->plan.npieces; p++) {
		struct zero_tensor *t = &z->tensors[r->plan.pieces[p].tensor];

		if (t->reported || t->first_piece != p)
			continue;
		rc = fill_without(z, t);
	}
	while (rc == 0 && r->stored < r->plan.nbuckets)
		rc = store_oldest(z);
	return rc;
}

/* ---- Reports -------------------------------------------------------------------------------------------- */

/* The gradient of a micro-step is added to the tensor's sum. */
static void add_to_sum(struct kolo_zero *z, struct zero_tensor *t, const char *gradient)
{
	float weighted[512], *sum = (float *)(void *)t->grad;
	size_t size = kolo_type_size(t->type), step = sizeof(weighted) / sizeof(weighted[0]);

	if (!t->summed) {
		weigh(z, gradient, t->type, t->grad, KOLO_F32, t->n, z->weight);
		t->summed = true;
		return;
	}
	for (size_t at = 0; at < t->n; at += step) {
		size_t n = t->n - at < step ? t->n - at : step;

		weigh(z, gradient + at * size, t->type, (char *)weighted, KOLO_F32, n, z->weight);
		z->kernels->add(sum + at, weighted, n);
	}
}

/* Keeps where this rank's gradients first had a value that is not finite. */
static void look_for_culprit(struct kolo_zero *z, int tensor, const char *gradient)
{
	const struct zero_tensor *t = &z->tensors[tensor];
	size_t size = kolo_type_size(t->type), i = 0;
	float value;

	if (z->culprit.tensor >= 0 || !z->suspect)
		return;
	while (is_finite(z, t->type, gradient + i * size, 1))
		i++;
	kolo_cast(gradient + i * size, t->type, &value, KOLO_F32, 1, 1);
	z->culprit = (struct zero_culprit){ tensor, z->micro, i, (double)value, 0 };
}

static int check_report(struct kolo_zero *z, const struct zero_tensor *t, const void *gradient)
{
	if (z->phase != ZERO_BACKWARD)
		return kolo_error_set(
			KOLO_EINVAL,
			"rank %d: gradient of tensor '%s' outside of kolo_zero_backward ... kolo_zero_step",
			z->rank, t->name);
	if (!t->trained)
		return kolo_error_set(KOLO_EINVAL, "rank %d: gradient of tensor '%s', which is frozen",
				      z->rank, t->name);
	if (t->reported)
		return kolo_error_set(
			KOLO_EINVAL,
			"rank %d: gradient of tensor '%s' twice in a micro-step; add up what it has from several uses",
			z->rank, t->name);
	if (!gradient && z->weight != 0)
		return kolo_error_set(KOLO_EINVAL, "rank %d: gradient of tensor '%s' is NULL", z->rank,
				      t->name);
	return 0;
}

int kolo_zero_gradient(struct kolo_zero *z, int tensor, const void *gradient)
{
	struct zero_tensor *t;
	int rc = zero_check(z);

	if (rc < 0 || !(t = zero_tensor_get(z, tensor, "gradient")))
		return rc < 0 ? rc : KOLO_EINVAL;
	if ((rc = check_report(z, t, gradient)) < 0)
		return rc;
	z->suspect = false;
	t->reported = true;
	/* A rank without samples has no mean, whatever it passes. */
	if (z->weight == 0)
		return zero_failed(z, fill_without(z, t));
	if (z->config.stage < 2 && z->config.accumulation > 1) {
		add_to_sum(z, t, gradient);
		look_for_culprit(z, tensor, gradient);
		rc = zero_reduces_now(z) ? fill_tensor(z, t, t->grad, KOLO_F32, sum_weight(z)) : 0;
	} else {
		rc = fill_tensor(z, t, gradient, t->type, z->weight);
		look_for_culprit(z, tensor, gradient);
	}
	return zero_failed(z, rc);
}
