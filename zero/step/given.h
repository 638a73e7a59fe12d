/* Which gradients were given in an update: those that no rank gave, or not every rank, are counted
 * over all ranks. */
#ifndef ZERO_STEP_GIVEN_H
#define ZERO_STEP_GIVEN_H

#include <stdbool.h>

struct kolo_zero;
struct kolo_zero_result;

/* Whether this rank gave a gradient of each trained tensor in each micro-step with samples. */
bool zero_given_all(const struct kolo_zero *zero);

/* Sets out->missing and out->partial. Collective; call it if zero_given_all is false on some rank.
 * Errors: KOLO_EINVAL if config.strict is set, on all ranks; KOLO_ENOMEM, and those of the
 * collectives. */
int zero_given_count(struct kolo_zero *zero, struct kolo_zero_result *out);

/* Forgets which were given. */
void zero_given_forget(struct kolo_zero *zero);

#endif
