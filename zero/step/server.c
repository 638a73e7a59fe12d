/* The parameter server (zero_server_reduce, zero_server_share): rank 0 has the optimizer, receives
 * all gradients and sends all parameters, by send and recv alone.
 *
 * It is the baseline for a ring. Of K bytes each other rank sends K, and rank 0 receives and sends
 * (N-1) K. */
#include "zero/step/server.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/optim/kernels.h"

/* Rank 0 adds the others' buckets to its own, in their order. */
static int collect(struct kolo_zero *z, const struct zero_bucket *b, char *memory)
{
	char *incoming = z->reducer.incoming;
	size_t n = (size_t)z->nranks * b->n, size = kolo_type_size(b->type);
	float sum[512], x[512];
	int rc = 0;

	for (int r = 1; rc == 0 && r < z->nranks; r++) {
		rc = kolo_recv(z->data, incoming, n, b->type, r, NULL);
		for (size_t at = 0; rc == 0 && at < n; at += 512) {
			size_t m = zero_min(n - at, 512);

			kolo_cast(memory + at * size, b->type, sum, KOLO_F32, m, 1);
			kolo_cast(incoming + at * size, b->type, x, KOLO_F32, m, 1);
			z->kernels->add(sum, x, m);
			kolo_cast(sum, KOLO_F32, memory + at * size, b->type, m, 1);
		}
	}
	return rc;
}

int zero_server_reduce(struct kolo_zero *z, const struct zero_bucket *b, char *memory)
{
	size_t n = (size_t)z->nranks * b->n;

	z->traffic.reductions++;
	if (z->rank == 0)
		return collect(z, b, memory);
	z->traffic.gradient_bytes += n * kolo_type_size(b->type);
	return kolo_send(z->data, memory, n, b->type, 0, NULL);
}

int zero_server_share(struct kolo_zero *z)
{
	int rc = 0;

	for (int i = 0; i < z->ntensors; i++) {
		struct zero_tensor *t = &z->tensors[i];

		if (!t->trained)
			continue;
		z->traffic.gathers++;
		for (int r = 1; rc == 0 && r < z->nranks && z->rank == 0; r++) {
			z->traffic.parameter_bytes += t->n * kolo_type_size(t->type);
			rc = kolo_send(z->data, t->param, t->n, t->type, r, NULL);
		}
		if (rc == 0 && z->rank > 0)
			rc = kolo_recv(z->data, t->param, t->n, t->type, 0, NULL);
	}
	return rc;
}
