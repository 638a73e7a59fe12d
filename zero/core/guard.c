/* Whether a call may go on (zero_check), and what a failed engine does (zero_failed): it aborts its
 * communicators, so that other ranks do not wait for it. */
#include "zero/core/guard.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"

#include <stdarg.h>
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

int zero_misuse(const struct kolo_zero *z, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return kolo_error_set(KOLO_EINVAL, "rank %d, step %ld: %s", z->rank, z->step + 1, text);
}

/* The first failure after which the engine refuses all calls. */
static bool is_final(const struct kolo_zero *z, int rc)
{
	return rc < 0 && rc != KOLO_EINVAL && rc != KOLO_EOVERFLOW && !z->failed;
}

/* Gathers and reductions have communicators of their own. Ranks that disagree find it by themselves
 * in one of them only. */
static void abort_apart(struct kolo_zero *z)
{
	struct kolo_comm *comms[] = { z->data, z->reducer.comm };

	for (int i = 0; i < 2; i++) {
		bool works = comms[i] && kolo_comm_status(comms[i]) == 0;

		/* The others read what happened. */
		kolo_error_set(z->failed, "%s", z->failure);
		if (works)
			kolo_comm_abort(comms[i]);
	}
}

int zero_failed(struct kolo_zero *z, int rc)
{
	if (is_final(z, rc)) {
		z->failed = rc;
		snprintf(z->failure, sizeof(z->failure), "%s", kolo_last_error());
		/* The other ranks must not wait for this one. They find by themselves that a rank
		 * is dead or that ranks disagree. */
		if (rc != KOLO_EPEER && rc != KOLO_EMISMATCH) {
			kolo_comm_abort(z->data);
			kolo_comm_abort(z->control);
			kolo_comm_abort(z->world);
			kolo_comm_abort(z->config.tied);
		}
		if (z->reducer.apart && rc != KOLO_EPEER)
			abort_apart(z);
		kolo_error_set(rc, "%s", z->failure);
	}
	return rc;
}

int zero_failed_at(struct kolo_zero *z, int rc, int tensor)
{
	char why[sizeof(z->failure)];

	if (is_final(z, rc)) {
		snprintf(why, sizeof(why), "%s", kolo_last_error());
		if (tensor >= 0)
			kolo_error_set(rc, "step %ld, tensor '%s': %s", z->step + 1,
				       z->tensors[tensor].name, why);
		else
			kolo_error_set(rc, "step %ld: %s", z->step + 1, why);
	}
	return zero_failed(z, rc);
}

int zero_check_between_updates(struct kolo_zero *z, const char *what)
{
	int rc = zero_check(z);

	if (rc == 0 && (z->phase != ZERO_IDLE || z->micro > 0))
		return kolo_error_set(KOLO_EINVAL, "rank %d: %s in the middle of an update",
				      z->rank, what);
	return rc;
}
