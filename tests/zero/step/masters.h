/* What a training came to: its masters, after checks of what the engine held and sent. */
#ifndef TESTS_ZERO_STEP_MASTERS_H
#define TESTS_ZERO_STEP_MASTERS_H

#include "kolo/kolo_zero.h"
#include "tests/lib/t.h"

#include <string.h>

/* Gets all tensors behind each other. */
static inline void get_masters(struct kolo_zero *zero, const size_t *sizes, int n, float *out)
{
	struct kolo_zero_traffic traffic;
	struct kolo_zero_memory memory;

	for (int k = 0; kolo_zero_memory_get(zero, k, &memory) == 0; k++)
		CHECK(strcmp(memory.kind, "gradients") != 0 || memory.bytes == memory.expected);
	CHECK(kolo_zero_traffic_get(zero, &traffic) == 0);
	CHECK(traffic.sent_bytes == traffic.gradient_bytes + traffic.parameter_bytes);
	for (int t = 0; t < n; out += sizes[t], t++)
		CHECK(kolo_zero_get(zero, t, out) == 0);
}

#endif
