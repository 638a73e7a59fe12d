/* Adds up gradients of tied tensors (zero_tied_add). Both engines cut a tensor alike, so each rank
 * adds what it owns, and no more than that travels. */
#include "zero/step/tied.h"

#include "zero/base/basics.h"
#include "zero/core/tensor.h"

int zero_tied_compare(struct kolo_zero *z)
{
	struct kolo_comm *comm = z->config.tied;
	uint64_t hash = zero_hash(ZERO_HASH, &z->nranks, sizeof(z->nranks)), most, least;
	int rc;

	for (int i = 0; i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];
		const uint64_t words[] = { t->n, (uint64_t)t->type, (uint64_t)t->grad_type,
					   t->grad_held.n, (uint64_t)z->rank };

		if (t->tied)
			hash = zero_hash(hash, words, sizeof(words));
	}
	rc = kolo_all_reduce(comm, &hash, &most, 1, KOLO_U64, KOLO_MAX, NULL);
	if (rc == 0)
		rc = kolo_all_reduce(comm, &hash, &least, 1, KOLO_U64, KOLO_MIN, NULL);
	if (rc == 0 && most != least)
		return kolo_error_set(
			KOLO_EMISMATCH,
			"rank %d: the tied tensors of the two engines have another number, size, type or owner",
			z->rank);
	return rc;
}

int zero_tied_add(struct kolo_zero *z)
{
	int rc = 0;

	for (int i = 0; rc == 0 && i < z->ntensors; i++) {
		struct zero_tensor *t = &z->tensors[i];
		char *own;

		if (!t->tied || t->held.n == 0)
			continue;
		own = zero_at(t->grad, t->grad_type, t->held.first - t->grad_held.first);
		rc = kolo_all_reduce(z->config.tied, own, own, t->held.n, t->grad_type, KOLO_SUM,
				     NULL);
		z->traffic.control_bytes += t->held.n * kolo_type_size(t->grad_type);
	}
	return rc;
}
