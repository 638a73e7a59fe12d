/* Adds up gradients of tied tensors (zero_tied_add). Both engines cut a tensor alike, so each rank
 * adds what it owns, and no more than that travels. With a device gradients may be there or
 * offloaded, where the two engines may differ. So they go through floats of the host, piece by
 * piece: a sum of two, rounded to their type, has the same bits. */
#include "zero/step/tied.h"

#include "zero/base/basics.h"
#include "zero/core/tensor.h"
#include "zero/offload/compute.h"

#include <stdlib.h>

enum { PIECE = 64 << 10 }; /* elements that are added at a time */

int zero_tied_compare(struct kolo_zero *z)
{
	struct kolo_comm *comm = z->config.tied;
	const int of_engine[] = { z->nranks, z->device != NULL };
	uint64_t hash = zero_hash(ZERO_HASH, of_engine, sizeof(of_engine)), most, least;
	int rc;

	for (int i = 0; i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];
		const uint64_t words[] = { t->n, (uint64_t)t->type, (uint64_t)t->grad_type,
					   t->held.n, (uint64_t)z->rank };

		if (t->tied)
			hash = zero_hash(hash, words, sizeof(words));
	}
	rc = kolo_all_reduce(comm, &hash, &most, 1, KOLO_U64, KOLO_MAX, NULL);
	if (rc == 0)
		rc = kolo_all_reduce(comm, &hash, &least, 1, KOLO_U64, KOLO_MIN, NULL);
	if (rc == 0 && most != least)
		return kolo_error_set(
			KOLO_EMISMATCH,
			"rank %d: the tied tensors of the two engines have another number, size, type or owner, or one engine has a device",
			z->rank);
	return rc;
}

static int add(struct kolo_zero *z, void *x, size_t n, enum kolo_type type)
{
	z->traffic.control_bytes += n * kolo_type_size(type);
	return kolo_all_reduce(z->config.tied, x, x, n, type, KOLO_SUM, NULL);
}

/* Memory for a piece: as floats, and as a device has it. */
struct piece {
	float x[PIECE], raw[PIECE];
};

/* Copies gradients of a part, which are on the device, to floats of the host, or from them. */
static int move_on_device(struct kolo_zero *z, const struct zero_tensor *t, struct zero_part part,
			  float *x, void *raw, bool back)
{
	char *there = zero_at(t->grad, t->grad_type, part.first - t->grad_held.first);
	size_t len = part.n * kolo_type_size(t->grad_type);
	int rc = 0;

	if (!z->on_host && !back)
		rc = zero_download_now(z, raw, there, len);
	if (rc < 0)
		return rc;
	raw = z->on_host ? there : raw;
	if (!back)
		return kolo_cast(raw, t->grad_type, x, KOLO_F32, part.n, 1);
	rc = kolo_cast(x, KOLO_F32, raw, t->grad_type, part.n, 1);
	return rc < 0 || z->on_host ? rc : zero_upload_now(z, there, raw, len);
}

/* As move_on_device, of those that are offloaded. */
static int move_offloaded(const struct zero_tensor *t, struct zero_part part, float *x, bool back)
{
	enum kolo_type type = t->offloaded.grad_type;
	char *there = zero_at(t->offloaded.grad, type, part.first - t->held.first);

	return back ? kolo_cast(x, KOLO_F32, there, type, part.n, 1)
		    : kolo_cast(there, type, x, KOLO_F32, part.n, 1);
}

static int move(struct kolo_zero *z, const struct zero_tensor *t, struct zero_part part,
		struct piece *p, bool back)
{
	struct zero_part offloaded = zero_part_offloaded(t, part),
			 on_device = zero_part_on_device(t, part);
	int rc = offloaded.n ? move_offloaded(t, offloaded, p->x, back) : 0;

	if (rc == 0 && on_device.n)
		rc = move_on_device(z, t, on_device, p->x + offloaded.n, p->raw, back);
	return rc;
}

static int add_in_pieces(struct kolo_zero *z, struct zero_tensor *t, struct piece *p)
{
	struct zero_part part = t->held;
	size_t end = part.first + part.n;
	int rc = zero_download_wait(z, t->download);

	if (rc == 0)
		rc = zero_compute_wait(z);
	for (; rc == 0 && part.first < end; part.first += part.n) {
		part.n = zero_min(end - part.first, PIECE);
		rc = move(z, t, part, p, false);
		if (rc == 0)
			rc = add(z, p->x, part.n, KOLO_F32);
		if (rc == 0)
			rc = move(z, t, part, p, true);
	}
	return rc;
}

int zero_tied_add(struct kolo_zero *z)
{
	struct piece *p = z->device ? malloc(sizeof(*p)) : NULL;
	int rc = z->device && !p
			 ? kolo_error_set(KOLO_ENOMEM,
					  "rank %d: gradients of tied tensors: out of memory",
					  z->rank)
			 : 0;

	for (int i = 0; rc == 0 && i < z->ntensors; i++) {
		struct zero_tensor *t = &z->tensors[i];
		char *own;

		if (!t->tied || t->held.n == 0)
			continue;
		own = zero_at(t->grad, t->grad_type, t->held.first - t->grad_held.first);
		rc = p ? add_in_pieces(z, t, p) : add(z, own, t->held.n, t->grad_type);
	}
	free(p);
	return rc;
}
