/* A model for tests of offload: tensors of sizes that divide by nothing, whose gradients are made
 * from their values, the rank and the step, so that any bit that differs goes on to differ. Where
 * the host can't compute in a device's memory it is copied. */
#ifndef TESTS_ZERO_OFFLOAD_STACK_H
#define TESTS_ZERO_OFFLOAD_STACK_H

#include "kolo/kolo_zero_device.h"

enum { STACK_TENSORS = 6 };

/* Elements of a tensor. The last one is frozen. */
size_t stack_size(int tensor);

/* An engine with first values that only the tensors decide. Errors: the engine's. */
int stack_create(struct kolo_comm *comm, const struct kolo_zero_config *config, enum kolo_type type,
		 struct kolo_zero **out);

/* One micro-step on a sample of each rank, and kolo_zero_step. Errors: the engine's. */
int stack_step(struct kolo_zero *zero, const struct kolo_zero_config *config, enum kolo_type type,
	       int rank, int micro_step, struct kolo_zero_result *out);

/* A hash of all parameters as they are used, and of all masters. Collective. */
uint64_t stack_hash(struct kolo_zero *zero, struct kolo_zero_device *device, enum kolo_type type);

#endif
