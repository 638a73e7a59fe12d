/* Gradients (kolo_zero_gradient): copied from the model into buckets, reduced over the ranks bucket
 * by bucket, and stored.
 *
 * The plan fixes which piece of which tensor is in which bucket. So gradients may come in any
 * order, another one on each rank. A bucket is reduced when it and all buckets before it are full.
 * All ranks reduce the same buckets one after the other.
 *
 * A gradient's weight is its rank's share of the samples: samples / (micro_batch predivide). The
 * rest of the divisor is the number of samples of all ranks. It is known only at the end of the
 * update, and is part of the update's factor (apply in step.c). */
#include "zero/step/gradients.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/guard.h"
#include "zero/core/tensor.h"
#include "zero/offload/compute.h"
#include "zero/offload/regions.h"
#include "zero/step/norm.h"
#include "zero/step/server.h"

#include <stdlib.h>
#include <time.h>

/* Seconds that a wait for a buffer lasts at first, and how much longer than an earlier one. */
enum { PATIENCE = 1, PATIENT = 8 };

/* ---- Buffers --------------------------------------------------------------------------------- */

static int open_buffer(struct kolo_zero *z, struct zero_buffer *b, char *memory)
{
	b->memory = memory;
	b->bucket = -1;
	return zero_mark_open(z, &b->reduced);
}

int zero_reducer_open(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	size_t n = (size_t)r->plan.nbuckets + 1;
	int rc = 0;

	r->patience = PATIENCE;
	r->missing = calloc(n, sizeof(*r->missing));
	r->buffer_of = calloc(n, sizeof(*r->buffer_of));
	r->buffers = calloc((size_t)r->nplanned + 1, sizeof(*r->buffers));
	if (!r->missing || !r->buffer_of || !r->buffers)
		return kolo_error_set(KOLO_ENOMEM, "%d buckets: out of memory", r->plan.nbuckets);
	for (; r->nbuffers < r->nplanned && rc == 0; r->nbuffers++)
		rc = open_buffer(
			z, &r->buffers[r->nbuffers],
			zero_arena_take(&z->arenas[ZERO_ON_DEVICE][ZERO_BUCKETS], r->buffer_len));
	if (z->config.parameter_server)
		r->incoming =
			zero_arena_take(&z->arenas[ZERO_ON_DEVICE][ZERO_BUCKETS], r->buffer_len);
	return rc;
}

void zero_reducer_close(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;

	for (int i = 0; i < r->nbuffers; i++) {
		zero_mark_close(&r->buffers[i].reduced);
		if (i >= r->nplanned && z->device)
			kolo_zero_device_free(z->device, r->buffers[i].memory, r->buffer_len);
		else if (i >= r->nplanned)
			free(r->buffers[i].memory);
	}
	free(r->buffers);
	free(r->missing);
	free(r->buffer_of);
}

void zero_reducer_begin(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;

	for (int b = 0; b < r->plan.nbuckets; b++) {
		r->missing[b] = r->plan.buckets[b].npieces;
		r->buffer_of[b] = -1;
	}
	r->started = r->stored = r->grant = 0;
	z->squared = 0;
	z->squares = zero_squares_none();
	for (int i = 0; i < z->ntensors; i++) {
		struct zero_tensor *t = &z->tensors[i];

		t->reported = 0;
		t->summed = t->summed && zero_sums_steps(z);
	}
}

void zero_begin_backward(struct kolo_zero *z)
{
	double began = z->phase_began;

	if (z->phase != ZERO_FORWARD)
		return;
	z->phase = ZERO_BACKWARD;
	z->phase_began = zero_now();
	z->times.forward += z->phase_began - began;
}

/* ---- Results --------------------------------------------------------------------------------- */

bool zero_reduces_now(const struct kolo_zero *z)
{
	return z->config.stage >= 2 || z->micro == z->config.accumulation - 1;
}

static bool is_last_micro(const struct kolo_zero *z)
{
	return z->micro == z->config.accumulation - 1;
}

/* Stores reduced elements of a tensor on the device: they become its gradient, or are added to
 * it. */
static int store_on_device(struct kolo_zero *z, struct zero_tensor *t, struct zero_part part,
			   const char *from)
{
	/* Ranks that reduce only once in an update have added up their micro-steps before. */
	bool first = z->micro == 0 || z->config.stage < 2;
	struct kolo_zero_work work = {
		.kind = first ? KOLO_ZERO_WORK_CAST : KOLO_ZERO_WORK_ADD,
		.n = part.n,
		.from = from,
		.from_type = t->given_type,
		.to = zero_at(t->grad, t->grad_type, part.first - t->grad_held.first),
		.to_type = t->grad_type,
		.factor = 1,
	};

	return zero_compute(z, &work);
}

static int download(struct kolo_zero *z, struct zero_tensor *t, struct zero_part part,
		    const char *from, uint64_t *ticket)
{
	char *to = zero_at(t->offloaded.grad, t->offloaded.grad_type, part.first - t->held.first);

	int rc =
		zero_download(z, to, from, part.n * kolo_type_size(t->offloaded.grad_type), ticket);

	t->download = z->last_download;
	return rc;
}

/* Stores reduced elements where their state is. Those whose state is offloaded are downloaded from
 * the bucket, and *ticket becomes that of the copy. If the device has sums of micro-steps, they are
 * downloaded from these, after the last micro-step. */
static int store_part(struct kolo_zero *z, struct zero_tensor *t, struct zero_part part,
		      const char *from, uint64_t *ticket)
{
	struct zero_part offloaded =
		z->device ? zero_part_offloaded(t, part) : (struct zero_part){ part.first, 0 };
	uint64_t of_sum;
	int rc;

	if (offloaded.n == 0)
		return store_on_device(z, t, part, from);
	if (zero_sums_reduced(z)) {
		rc = store_on_device(z, t, part, from);
		from = zero_at(t->grad, t->grad_type, offloaded.first - t->grad_held.first);
		return rc < 0 || !is_last_micro(z) ? rc : download(z, t, offloaded, from, &of_sum);
	}
	/* Offloaded elements come before the rest. */
	rc = download(z, t, offloaded, from, ticket);
	if (rc == 0 && offloaded.n < part.n)
		rc = store_on_device(
			z, t,
			(struct zero_part){ offloaded.first + offloaded.n, part.n - offloaded.n },
			from + offloaded.n * kolo_type_size(t->given_type));
	return rc;
}

/* Whether this rank keeps the part of a bucket that `owner` owns. At stage 0 it keeps all parts.
 * With a parameter server rank 0 keeps all, and the other ranks none. */
static bool keeps(const struct kolo_zero *z, int owner)
{
	if (z->config.parameter_server)
		return z->rank == 0;
	return z->config.stage == 0 || owner == z->rank;
}

/* The place where a reduction can leave its result at once: the gradient of the one tensor in the
 * bucket. NULL: the result must be stored, because the bucket has several tensors or padding, or is
 * added to a sum, or has parts that are not kept. */
static char *destination(const struct kolo_zero *z, const struct zero_bucket *b)
{
	const struct zero_tensor *t = &z->tensors[z->reducer.plan.pieces[b->first].tensor];
	bool same_parts = z->config.stage == 0 || z->config.reduce_scatter;

	if (!b->whole || t->chunk * (size_t)z->nranks != t->n || z->config.accumulation > 1 ||
	    !same_parts || z->config.parameter_server || (z->device && t->offloaded.n))
		return NULL;
	return t->grad;
}

static int store_bucket(struct kolo_zero *z, const struct zero_bucket *b,
			struct zero_buffer *buffer)
{
	int rc = 0;

	if (destination(z, b))
		return 0;
	for (int p = b->first; p < b->first + b->npieces; p++) {
		const struct zero_piece *piece = &z->reducer.plan.pieces[p];
		struct zero_tensor *t = &z->tensors[piece->tensor];

		for (int r = 0; rc == 0 && r < z->nranks; r++) {
			size_t at = ((size_t)r * b->n + piece->at) * kolo_type_size(b->type);

			if (keeps(z, r))
				rc = store_part(
					z, t,
					zero_part_of(t->n, z->nranks, r, piece->first, piece->n),
					buffer->memory + at, &buffer->download);
		}
	}
	return rc;
}

/* Waits for the oldest bucket that was started, stores it and frees its buffer. */
static int store_oldest(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	struct zero_buffer *buffer = &r->buffers[r->buffer_of[r->stored]];
	double began = zero_now();
	int rc = zero_mark_wait(z, &buffer->reduced);

	z->times.reduce += zero_now() - began;
	if (rc == 0)
		rc = store_bucket(z, &r->plan.buckets[r->stored], buffer);
	if (rc < 0)
		return rc;
	buffer->bucket = -1;
	r->stored++;
	return zero_square_downloaded(z);
}

/* ---- Reduction ------------------------------------------------------------------------------- */

static bool scatters(const struct kolo_zero *z)
{
	return z->config.stage > 0 && z->config.reduce_scatter;
}

void zero_count_reduction(struct kolo_zero *z, const struct zero_bucket *b)
{
	size_t size = kolo_type_size(b->type), real = zero_bucket_elements(z, &z->reducer.plan, b);
	uint64_t once = (uint64_t)(z->nranks - 1) * b->n * size;
	unsigned ways = scatters(z) ? 1 : 2;

	z->traffic.reductions++;
	z->traffic.gradient_bytes += ways * once;
	/* Each rank sends (N-1)/N of the padding of all ranks, in each direction. */
	z->traffic.padding_bytes += ways * ((size_t)z->nranks * b->n - real) * size *
				    (uint64_t)(z->nranks - 1) / (uint64_t)z->nranks;
}

static int reduce(struct kolo_zero *z, const struct zero_bucket *b, char *memory)
{
	char *own = zero_at(memory, b->type, (size_t)z->rank * b->n), *to = destination(z, b);
	const struct zero_reducer *r = &z->reducer;

	if (z->config.parameter_server)
		return zero_server_reduce(z, b, memory);
	zero_count_reduction(z, b);
	if (scatters(z))
		return kolo_reduce_scatter(r->comm, memory, to ? to : own, b->n, b->type, KOLO_SUM,
					   r->queue);
	return kolo_all_reduce(r->comm, memory, to ? to : memory, (size_t)z->nranks * b->n, b->type,
			       KOLO_SUM, r->queue);
}

/* Starts to reduce all buckets whose turn it is. Without a queue it also stores each. */
static int start_full(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	int rc = 0;

	while (rc == 0 && r->started < r->plan.nbuckets && r->missing[r->started] == 0) {
		struct zero_buffer *buffer = &r->buffers[r->buffer_of[r->started]];
		double began = zero_now();

		rc = reduce(z, &r->plan.buckets[r->started], buffer->memory);
		z->times.reduce += zero_now() - began;
		if (rc == 0)
			rc = zero_mark_set(z, &buffer->reduced, r->queue);
		if (rc == 0)
			r->started++;
		if (rc == 0 && !z->queue)
			rc = store_oldest(z);
	}
	return rc;
}

static int more_memory(struct kolo_zero *z, char **out)
{
	void *memory = NULL;
	int rc = 0;

	if (z->device)
		rc = zero_device_ask(z, z->reducer.buffer_len, "one more bucket", &memory);
	else if (!(memory = malloc(z->reducer.buffer_len)))
		rc = kolo_error_set(KOLO_ENOMEM,
				    "rank %d: %zu bytes for bucket buffer %d: out of memory",
				    z->rank, z->reducer.buffer_len, z->reducer.nbuffers + 1);
	*out = memory;
	return rc;
}

/* Adds a buffer: the order of the gradients leaves more buckets open than were planned. */
static int add_buffer(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	struct zero_buffer *more = realloc(r->buffers, ((size_t)r->nbuffers + 1) * sizeof(*more));
	char *memory;
	int rc;

	if (!more)
		return kolo_error_set(KOLO_ENOMEM, "rank %d: %d bucket buffers: out of memory",
				      z->rank, r->nbuffers + 1);
	r->buffers = more;
	if ((rc = more_memory(z, &memory)) < 0)
		return rc;
	z->extra_buckets += r->buffer_len;
	more[r->nbuffers] = (struct zero_buffer){ 0 };
	return open_buffer(z, &more[r->nbuffers++], memory);
}

/* Waits for the oldest bucket, but not for ever. At stage 3 ranks may report gradients at different
 * places: then the rank that has not filled that bucket may itself wait in kolo_zero_use for this
 * one, which must take another buffer and go on. Only time can tell this from a slow rank. So the
 * wait is longer than those that have ended well, and who has waited in vain does not do so again
 * for each buffer. Returns false if a buffer should be added. */
static bool comes_in_time(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	struct zero_mark *oldest = &r->buffers[r->buffer_of[r->stored]].reduced;
	double began = zero_now(), waited = 0;

	if (!r->apart)
		return true;
	for (long ns = 20000; !zero_mark_passed(z, oldest); waited = zero_now() - began) {
		if (r->grant > 0 || waited > r->patience) {
			r->grant = r->grant > 0 ? r->grant - 1 : r->nbuffers - 1;
			z->times.reduce += waited;
			return false;
		}
		nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
		ns = ns < 500000 ? ns + ns / 8 : ns;
	}
	z->times.reduce += waited;
	if (r->patience < PATIENT * waited)
		r->patience = PATIENT * waited;
	return true;
}

/* Makes a buffer free: waits for the oldest bucket and takes its buffer, or adds one. */
static int free_buffer(struct kolo_zero *z)
{
	bool waits = z->reducer.stored < z->reducer.started;
	int rc;

	if (waits && comes_in_time(z))
		return store_oldest(z);
	rc = add_buffer(z);
	/* Without memory there is nothing but to wait. */
	return rc == KOLO_ENOMEM && waits ? store_oldest(z) : rc;
}

/* Gives a bucket a free buffer. */
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
			rc = zero_download_wait(z, r->buffers[i].download);
			return rc == 0 ? zero_square_downloaded(z) : rc;
		}
		rc = free_buffer(z);
	}
	return rc;
}

/* Multiplies n elements of the model, or of sums, by a weight. Notes whether all were finite. */
static int weigh(struct kolo_zero *z, enum kolo_zero_work_kind kind, const char *src,
		 enum kolo_type type, char *dst, enum kolo_type dst_type, size_t n, float weight)
{
	struct kolo_zero_work work = {
		.kind = kind,
		.n = n,
		.from = src,
		.from_type = type,
		.to = dst,
		.to_type = dst_type,
		.factor = weight,
		.bad = z->bad,
	};

	return zero_compute(z, &work);
}

static int clear(struct kolo_zero *z, char *to, enum kolo_type type, size_t n)
{
	struct kolo_zero_work work = {
		.kind = KOLO_ZERO_WORK_CLEAR, .n = n, .to = to, .to_type = type
	};

	return zero_compute(z, &work);
}

/* Puts a tensor's elements times weight into its piece of a bucket. What reaches beyond the tensor
 * is zero. All of it is zero if src is NULL. */
static int fill_piece(struct kolo_zero *z, const struct zero_piece *piece,
		      const struct zero_bucket *b, char *memory, const char *src,
		      enum kolo_type type, float weight)
{
	const struct zero_tensor *t = &z->tensors[piece->tensor];
	size_t size = kolo_type_size(b->type);
	int rc = 0;

	for (int r = 0; rc == 0 && r < z->nranks; r++) {
		struct zero_part part = zero_part_of(t->n, z->nranks, r, piece->first, piece->n);
		char *to = memory + ((size_t)r * b->n + piece->at) * size;

		if (!src)
			part.n = 0;
		if (part.n)
			rc = weigh(z, KOLO_ZERO_WORK_CAST, src + part.first * kolo_type_size(type),
				   type, to, b->type, part.n, weight);
		if (rc == 0)
			rc = clear(z, to + part.n * size, b->type, piece->n - part.n);
	}
	return rc;
}

static int fill_tensor(struct kolo_zero *z, struct zero_tensor *t, const void *src,
		       enum kolo_type type, float weight)
{
	struct zero_reducer *r = &z->reducer;
	int bucket = t->first_bucket, rc = 0;

	for (int p = t->first_piece; rc == 0 && p < t->first_piece + t->npieces; p++) {
		bucket += p == r->plan.buckets[bucket].first + r->plan.buckets[bucket].npieces;
		if (r->buffer_of[bucket] < 0)
			rc = take_buffer(z, bucket);
		if (rc < 0)
			return rc;
		rc = fill_piece(z, &r->plan.pieces[p], &r->plan.buckets[bucket],
				r->buffers[r->buffer_of[bucket]].memory, src, type, weight);
		r->missing[bucket]--;
		if (rc == 0)
			rc = start_full(z);
	}
	return rc;
}

/* The factor of a sum before ranks add it in the tensor's type. That of micro-steps is divided by
 * their number, so that it needs no larger numbers than one gradient; the update takes this into
 * account. That of micro-batches is one gradient. */
static float sum_weight(const struct kolo_zero *z)
{
	return zero_sums_steps(z) ? 1.0f / (float)z->config.accumulation : z->weight;
}

/* Fills the pieces of a tensor with what this rank has added up: zeros, if it has no gradient. */
static int fill_from_sum(struct kolo_zero *z, struct zero_tensor *t)
{
	return zero_reduces_now(z)
		       ? fill_tensor(z, t, t->summed ? t->sum : NULL, KOLO_F32, sum_weight(z))
		       : 0;
}

int zero_reducer_finish(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	int rc = 0;

	/* In the plan's order, so that buckets become full one after the other. */
	for (int p = 0; rc == 0 && p < r->plan.npieces; p++) {
		struct zero_tensor *t = &z->tensors[r->plan.pieces[p].tensor];

		if (t->reported < t->micros && t->first_piece == p)
			rc = fill_from_sum(z, t);
	}
	while (rc == 0 && r->stored < r->plan.nbuckets)
		rc = store_oldest(z);
	return rc;
}

/* ---- Reports --------------------------------------------------------------------------------- */

/* Adds a gradient to the tensor's sum. Micro-steps weigh by their samples. */
static int add_to_sum(struct kolo_zero *z, struct zero_tensor *t, const char *gradient)
{
	enum kolo_zero_work_kind kind = t->summed ? KOLO_ZERO_WORK_ADD : KOLO_ZERO_WORK_CAST;
	float weight = zero_sums_steps(z) ? z->weight : 1;

	t->summed = true;
	return weigh(z, kind, gradient, t->given_type, t->sum, KOLO_F32, t->n, weight);
}

/* Remembers the first value in this rank's gradients that is not finite. */
static int look_for_nonfinite(struct kolo_zero *z, int tensor, const char *gradient)
{
	const struct zero_tensor *t = &z->tensors[tensor];
	size_t size = kolo_type_size(t->given_type);
	char some[1024];
	float value;
	int rc = 0;

	if (z->nonfinite.tensor >= 0 || !*z->bad)
		return 0;
	for (size_t i = 0, n; rc == 0 && i < t->n; i += n) {
		n = zero_min(t->n - i, sizeof(some) / size);
		rc = zero_download_now(z, some, gradient + i * size, n * size);
		for (size_t k = 0; rc == 0 && k < n; k++) {
			kolo_cast(some + k * size, t->given_type, &value, KOLO_F32, 1, 1);
			if (__builtin_isfinite(value))
				continue;
			z->nonfinite = (struct zero_nonfinite){ tensor, z->micro, i + k,
								(double)value, 0 };
			return 0;
		}
	}
	return rc;
}

static int check_report(const struct kolo_zero *z, const struct zero_tensor *t,
			const void *gradient)
{
	const char *name = t->name;

	if (z->phase == ZERO_IDLE || (z->phase == ZERO_FORWARD && !z->config.micros))
		return zero_misuse(z, "gradient of tensor '%s' outside of %s ... kolo_zero_step",
				   name,
				   z->config.micros ? "kolo_zero_forward" : "kolo_zero_backward");
	if (!t->trained)
		return zero_misuse(z, "gradient of tensor '%s', which is frozen", name);
	if (t->reported == t->micros && t->micros > 1)
		return zero_misuse(
			z,
			"gradient number %d of tensor '%s' in a micro-step, and config.micros is %d",
			t->reported + 1, name, t->micros);
	if (t->reported == t->micros)
		return zero_misuse(
			z,
			"gradient of tensor '%s' twice in a micro-step; add up what it has from several uses",
			name);
	if (!gradient && z->weight != 0)
		return zero_misuse(z, "gradient of tensor '%s' is NULL", name);
	if (!t->used && z->weight != 0)
		return zero_misuse(
			z,
			"gradient of tensor '%s' without kolo_zero_use since the last update: what the model read may be older; say kolo_zero_use before each read",
			name);
	return 0;
}

/* Stores the buckets that are reduced by now, so that their downloads start early. */
static int store_done(struct kolo_zero *z)
{
	struct zero_reducer *r = &z->reducer;
	int rc = 0;

	while (rc == 0 && r->stored < r->started &&
	       zero_mark_passed(z, &r->buffers[r->buffer_of[r->stored]].reduced))
		rc = store_oldest(z);
	return rc;
}

static int take_gradient(struct kolo_zero *z, int tensor, const char *gradient)
{
	struct zero_tensor *t = &z->tensors[tensor];
	int rc = t->sum ? add_to_sum(z, t, gradient)
			: fill_tensor(z, t, gradient, t->given_type, z->weight);

	/* Now the gradient has been read, and bad says whether it is finite. */
	if (rc == 0)
		rc = zero_compute_wait(z);
	if (rc == 0)
		rc = look_for_nonfinite(z, tensor, gradient);
	if (rc == 0 && t->sum && t->reported == t->micros)
		rc = fill_from_sum(z, t);
	return rc == 0 ? store_done(z) : rc;
}

/* After a failure too the gradient is the caller's again when this returns. The other ranks know of
 * the failure by now, so work that waits for theirs ends. */
static int stop_reading(struct kolo_zero *z, int rc)
{
	if (rc == 0 || !z->failed)
		return rc;
	zero_compute_wait(z);
	return kolo_error_set(rc, "%s", z->failure);
}

int kolo_zero_gradient(struct kolo_zero *z, int tensor, const void *gradient)
{
	struct zero_tensor *t;
	int rc = zero_check(z);

	if (rc < 0 || !(t = zero_tensor_get(z, tensor, "gradient")))
		return rc < 0 ? rc : KOLO_EINVAL;
	if ((rc = check_report(z, t, gradient)) < 0)
		return rc;
	zero_begin_backward(z);
	*z->bad = 0;
	t->reported++;
	/* A rank without samples gives zeros, whatever it passes. */
	if (z->weight == 0)
		return t->reported < t->micros ? 0 : zero_failed_at(z, fill_from_sum(z, t), tensor);
	t->given++;
	return stop_reading(z, zero_failed_at(z, take_gradient(z, tensor, gradient), tensor));
}
