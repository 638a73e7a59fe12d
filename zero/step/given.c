/* Counts gradients that no rank gave in an update, or not every rank (zero_given_count). A rank
 * without samples gives zeros, so it lacks none. */
#include "zero/step/given.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/guard.h"

#include <stdlib.h>

static bool lacks(const struct kolo_zero *z, const struct zero_tensor *t)
{
	return t->trained && t->given < z->learnt * t->micros;
}

bool zero_given_all(const struct kolo_zero *z)
{
	for (int i = 0; i < z->ntensors; i++)
		if (lacks(z, &z->tensors[i]))
			return false;
	return true;
}

void zero_given_forget(struct kolo_zero *z)
{
	z->learnt = 0;
	for (int i = 0; i < z->ntensors; i++)
		z->tensors[i].given = 0;
}

/* Of tensor `tensor`, over all ranks: whether none gave it, and the first rank that lacks it;
 * nranks: there is none. */
struct given {
	int32_t by_none, lacking;
};

static int refuse(const struct kolo_zero *z, int tensor, const struct given *g,
		  const struct kolo_zero_result *r)
{
	const char *name = z->tensors[tensor].name;
	unsigned long long others = (unsigned long long)(r->missing + r->partial - 1);

	if (g->by_none)
		return zero_misuse(
			z,
			"no rank gave a gradient of tensor '%s' (%llu more are missing or partial); config.strict refuses this update",
			name, others);
	return zero_misuse(
		z,
		"rank %d gave fewer gradients of tensor '%s' than %s with samples (%llu more are missing or partial); config.strict refuses this update",
		(int)g->lacking, name,
		z->tensors[tensor].micros > 1 ? "micro-batches" : "micro-steps", others);
}

int zero_given_count(struct kolo_zero *z, struct kolo_zero_result *out)
{
	size_t n = (size_t)z->ntensors;
	struct given *all = calloc(n, sizeof(*all));
	int rc, first = -1;

	if (!all)
		return kolo_error_set(KOLO_ENOMEM,
				      "rank %d: gradients of %d tensors: out of memory", z->rank,
				      z->ntensors);
	for (size_t i = 0; i < n; i++) {
		const struct zero_tensor *t = &z->tensors[i];

		all[i].by_none = t->trained && t->given == 0;
		all[i].lacking = lacks(z, t) ? z->rank : z->nranks;
	}
	rc = kolo_all_reduce(z->control, all, all, 2 * n, KOLO_I32, KOLO_MIN, NULL);
	z->traffic.control_bytes +=
		2 * n * sizeof(*all) * (uint64_t)(z->nranks - 1) / (uint64_t)z->nranks;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		bool partial = !all[i].by_none && all[i].lacking < z->nranks;

		out->missing += all[i].by_none ? 1 : 0;
		out->partial += partial ? 1 : 0;
		if (first < 0 && (all[i].by_none || partial))
			first = (int)i;
	}
	if (rc == 0 && z->config.strict)
		rc = refuse(z, first, &all[first], out);
	free(all);
	return rc;
}
