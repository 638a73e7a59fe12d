/* See guard.h. What a failed engine does to the others: it aborts the communicators, so that they
 * do not wait for it. */
#include "zero/core/guard.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"

#include <stdio.h>

int zero_check(struct kolo_zero *z)
{
	if (!z)
		return kolo_error_set(KOLO_EINVAL, "the engine is NULL");
	if (z->failed)
		return kolo_error_set(z->failed, "%s", z->failure);
	if (z->torn)
		return kolo_error_set(
			KOLO_EINVAL,
			"rank %d: a load has failed half way, and only another kolo_zero_load helps: %s",
			z->rank, z->failure);
	return 0;
}

int zero_failed(struct kolo_zero *z, int rc)
{
	if (rc < 0 && rc != KOLO_EINVAL && rc != KOLO_EOVERFLOW && !z->failed) {
		z->failed = rc;
		snprintf(z->failure, sizeof(z->failure), "%s", kolo_last_error());
		/* The others must not wait for this rank. That one is dead, or ranks disagree, they
		 * find themselves. */
		if (rc != KOLO_EPEER && rc != KOLO_EMISMATCH) {
			kolo_comm_abort(z->data);
			kolo_comm_abort(z->control);
		}
		kolo_error_set(rc, "%s", z->failure);
	}
	return rc;
}

int zero_check_between_updates(struct kolo_zero *z, const char *what)
{
	int rc = zero_check(z);

	if (rc == 0 && (z->phase != ZERO_IDLE || z->micro > 0))
		return kolo_error_set(KOLO_EINVAL, "rank %d: %s in the middle of an update", z->rank, what);
	return rc;
}
