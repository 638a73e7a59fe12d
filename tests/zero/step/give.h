/* A gradient of a tensor that the test does not compute with: it is used first, as the engine
 * demands. */
#ifndef TESTS_ZERO_STEP_GIVE_H
#define TESTS_ZERO_STEP_GIVE_H

#include "kolo/kolo_zero.h"

/* Returns 0 or the engine's error. */
static inline int give(struct kolo_zero *zero, int tensor, const void *gradient)
{
	int rc = kolo_zero_use(zero, tensor, NULL);

	if (rc == 0)
		rc = kolo_zero_release(zero, tensor);
	return rc == 0 ? kolo_zero_gradient(zero, tensor, gradient) : rc;
}

#endif
