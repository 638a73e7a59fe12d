/* The gradient norm (zero_square_sum). Squares are added up so that no order of additions shows
 * (zero/optim/squares.h): the norm does not depend on threads, on the stage, on where a gradient
 * is, nor on how the model is divided over ranks. A device of its own gives the digits of blocks.
 */
#include "zero/step/norm.h"

#include "zero/base/basics.h"
#include "zero/core/tensor.h"
#include "zero/offload/compute.h"
#include "zero/optim/work.h"

/* ---- Squares --------------------------------------------------------------------------------- */

int zero_norm_open(struct kolo_zero *z)
{
	struct kolo_zero_work nothing = { .kind = KOLO_ZERO_WORK_DIGITS,
					  .from_type = KOLO_F32,
					  .sums = z->sums };
	uint64_t ticket;
	int rc;

	if (z->on_host)
		return 0;
	rc = z->device->ops->work(z->device, &nothing, &ticket);
	z->digits = rc == 0;
	if (rc == 0)
		rc = z->device->ops->wait(z->device, KOLO_ZERO_COMPUTE, ticket);
	return rc == KOLO_EINVAL ? 0 : rc;
}

static size_t numbers_of_block(const struct kolo_zero *z)
{
	return z->digits ? ZERO_BLOCK_DIGITS : 1;
}

/* On a device of its own: squares of blocks, which are there when its work is done. First those of
 * elements that are offloaded, then those of others. */
static int square_on_device(struct kolo_zero *z, const struct zero_tensor *t,
			    struct zero_part offloaded, struct zero_part on_device, size_t at)
{
	struct kolo_zero_work work = {
		.kind = z->digits ? KOLO_ZERO_WORK_DIGITS : KOLO_ZERO_WORK_SQUARES,
		.n = offloaded.n,
		.from = t->offloaded.grad,
		.from_type = t->offloaded.grad_type,
		.sums = z->sums + at * numbers_of_block(z),
	};

	if (offloaded.n)
		zero_work_run(z->threads, z->kernels, &work);
	work.n = on_device.n;
	work.from = zero_at(t->grad, t->grad_type, on_device.first - t->grad_held.first);
	work.from_type = t->grad_type;
	work.sums += zero_blocks(offloaded.n) * numbers_of_block(z);
	return zero_compute(z, &work);
}

/* Adds the squares of a part; on a device of its own to sums, from block `at` on. Of a replicated
 * tensor another engine's copy counts. */
static int square_part(struct kolo_zero *z, const struct zero_tensor *t, struct zero_part part,
		       size_t at)
{
	struct zero_part offloaded = zero_part_offloaded(t, part),
			 on_device = zero_part_on_device(t, part);

	if (!t->counted)
		return 0;
	if (!z->on_host)
		return square_on_device(z, t, offloaded, on_device, at);
	if (offloaded.n)
		zero_work_squares(z->threads, z->kernels, t->offloaded.grad, t->offloaded.grad_type,
				  offloaded.n, &z->squares);
	zero_work_squares(z->threads, z->kernels,
			  zero_at(t->grad, t->grad_type, on_device.first - t->grad_held.first),
			  t->grad_type, on_device.n, &z->squares);
	return 0;
}

/* The part of the gradients whose squares this rank adds up: its own. With a parameter server rank
 * 0 has all, and the other ranks none. */
static bool sums_part(const struct kolo_zero *z, int owner)
{
	return z->config.parameter_server ? z->rank == 0 : owner == z->rank;
}

/* Adds up squares of tensors, in the order in which these are reduced. It takes all of them, or
 * only those that are stored and downloaded. */
static int square_stored(struct kolo_zero *z, bool all)
{
	const struct zero_plan *plan = &z->reducer.plan;
	int stored = z->reducer.stored, pieces, rc = 0;

	pieces = stored ? plan->buckets[stored - 1].first + plan->buckets[stored - 1].npieces : 0;
	while (rc == 0 && z->squared < plan->npieces) {
		const struct zero_tensor *t = &z->tensors[plan->pieces[z->squared].tensor];

		/* The other engine's gradients come first. */
		if (!all &&
		    (z->squared + t->npieces > pieces || t->download > z->downloaded || t->tied))
			break;
		rc = square_part(z, t, t->own, t->sums_at);
		z->squared += t->npieces;
	}
	return rc;
}

int zero_square_downloaded(struct kolo_zero *z)
{
	bool last = z->micro == z->config.accumulation - 1;

	return last && z->config.stage > 0 ? square_stored(z, false) : 0;
}

/* The sum of squares if this rank has all gradients. It sums each owner's part by itself. */
static int square_all(struct kolo_zero *z)
{
	size_t at = 0;
	int rc = 0;

	for (int r = 0; r < z->nranks; r++)
		for (int i = 0; rc == 0 && i < z->ntensors && sums_part(z, r); i++) {
			struct zero_part part = zero_owned(z->tensors[i].n, z->nranks, r);

			if (!z->tensors[i].trained)
				continue;
			rc = square_part(z, &z->tensors[i], part, at);
			at += zero_blocks(part.n);
		}
	return rc;
}

/* Adds what a device of its own gave for a block. */
static void add_block(const struct kolo_zero *z, const double *block, struct zero_squares *out)
{
	struct zero_squares own = zero_squares_none();

	if (!z->digits) {
		zero_squares_add_number(out, *block);
		return;
	}
	for (int l = 0; l < ZERO_LEVELS; l++)
		own.digits[l] = (int64_t)block[l];
	own.level = (int64_t)block[ZERO_LEVELS];
	zero_squares_add(out, &own);
}

/* Adds up the blocks of a device of its own. */
static void add_blocks(const struct kolo_zero *z, struct zero_squares *out)
{
	const double *sums = z->sums;

	for (int r = 0; r < z->nranks; r++)
		for (int i = 0; i < z->ntensors && sums_part(z, r); i++) {
			const struct zero_tensor *t = &z->tensors[i];
			size_t blocks = zero_blocks(zero_owned(t->n, z->nranks, r).n);

			if (!t->trained)
				continue;
			for (size_t b = 0; t->counted && b < blocks; b++)
				add_block(z, sums + b * numbers_of_block(z), out);
			sums += blocks * numbers_of_block(z);
		}
}

int zero_square_sum(struct kolo_zero *z, struct zero_squares *out)
{
	int rc = zero_download_wait(z, z->last_download);

	if (rc == 0)
		rc = z->config.stage > 0 ? square_stored(z, true) : square_all(z);
	if (rc == 0)
		rc = zero_compute_wait(z);
	*out = z->squares;
	if (rc == 0 && !z->on_host)
		add_blocks(z, out);
	return rc;
}

/* ---- What is not finite ---------------------------------------------------------------------- */

/* The index of the first of n gradients in host memory that is not finite. n: there is none. */
static size_t find_bad(const char *x, enum kolo_type type, size_t n, float *value)
{
	for (size_t i = 0; i < n; i++) {
		kolo_cast(x + i * kolo_type_size(type), type, value, KOLO_F32, 1, 1);
		if (!__builtin_isfinite(*value))
			return i;
	}
	return n;
}

/* The index in the tensor of its first gradient that is not finite. t->n: there is none. */
static int find_bad_of(struct kolo_zero *z, const struct zero_tensor *t, size_t *out, float *value)
{
	size_t size = kolo_type_size(t->grad_type), step, end = t->grad_held.first + t->grad_held.n,
	       bad;
	char some[4096];
	int rc = 0;

	*out = t->n;
	if (t->offloaded.n && (bad = find_bad(t->offloaded.grad, t->offloaded.grad_type,
					      t->offloaded.n, value)) < t->offloaded.n) {
		*out = t->held.first + bad;
		return 0;
	}
	for (size_t at = t->grad_held.first; rc == 0 && at < end; at += step) {
		step = zero_min(sizeof(some) / size, end - at);
		rc = zero_download_now(z, some, t->grad + (at - t->grad_held.first) * size,
				       step * size);
		bad = rc == 0 ? find_bad(some, t->grad_type, step, value) : step;
		if (bad < step) {
			*out = at + bad;
			return 0;
		}
	}
	return rc;
}

int zero_find_nonfinite(struct kolo_zero *z, struct zero_nonfinite *out)
{
	int rc = 0;

	for (int i = 0; rc == 0 && i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];
		float value = 0;
		size_t bad = t->n;

		if (t->trained)
			rc = find_bad_of(z, t, &bad, &value);
		if (bad < t->n) {
			*out = (struct zero_nonfinite){ i, z->micro, bad, (double)value, 1 };
			return rc;
		}
	}
	return rc;
}
