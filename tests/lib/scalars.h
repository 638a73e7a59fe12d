/* Factors of an update for tests of its loops: no two alike, and none that would hide another
 * one. */
#ifndef TESTS_LIB_SCALARS_H
#define TESTS_LIB_SCALARS_H

#include "kolo/kolo_zero_device.h"

static inline struct kolo_zero_scalars t_scalars(int first, int nesterov)
{
	return (struct kolo_zero_scalars){ .keep = 0.999f,
					   .decay = 0.01f,
					   .beta1 = 0.9f,
					   .rest1 = 0.1f,
					   .beta2 = 0.99f,
					   .rest2 = 0.01f,
					   .rate = 0.03f,
					   .root2 = 0.3f,
					   .bias1 = 0.4f,
					   .eps = 1e-6f,
					   .momentum = 0.9f,
					   .rest = 0.7f,
					   .first = first,
					   .nesterov = nesterov };
}

#endif
