/* What an engine would hold and send, and whether it fits, before anything is made. */
#ifndef ZERO_CREATE_PLAN_H
#define ZERO_CREATE_PLAN_H

#include <stddef.h>

struct kolo_zero;
struct kolo_zero_traffic;

/* Finds what a model gathers that uses its tensors one after the other, forward and then backward.
 * Sets dry_gathered and the traffic of one such micro-step. Call it after zero_describe, before
 * anything is opened. Errors: KOLO_ENOMEM. */
int zero_plan_uses(struct kolo_zero *zero, struct kolo_zero_traffic *of_one);

/* Sets the warning if stage 3 gathers as much as it saves. After zero_plan_uses. */
void zero_plan_warn(struct kolo_zero *zero);

/* Bytes of host memory that the engine needs. After zero_plan_uses. */
size_t zero_plan_host_bytes(const struct kolo_zero *zero);

/* Bytes that programs may still take, as the system estimates it; SIZE_MAX: it does not say. */
size_t zero_plan_available(void);

/* KOLO_ENOMEM if the engine does not fit into the device, or not into the host beside `others`
 * bytes of other ranks. `available`: the host's bytes, which count if the config has no budget.
 * After zero_plan_uses. */
int zero_plan_fits(const struct kolo_zero *zero, size_t available, size_t others);

#endif
