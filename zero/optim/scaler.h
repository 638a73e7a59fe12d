/* The loss scale: fixed, or adapting to overflows by DeepSpeed's rule, which kolo_zero.h
 * describes. */
#ifndef ZERO_OPTIM_SCALER_H
#define ZERO_OPTIM_SCALER_H

#include "kolo/kolo_zero.h"

#include <stdbool.h>

struct zero_scaler {
	bool adapts;
	double scale;
	int64_t updates;       /* tried, those that were skipped too */
	int64_t last_overflow; /* the number of the last that overflowed, from 0; -1: none */
	int64_t left;          /* of the hysteresis, at least 1 */
};

/* 0, or KOLO_EINVAL with the field that is wrong. */
int zero_scaler_check(const struct kolo_zero_config *config);

void zero_scaler_init(struct zero_scaler *out, const struct kolo_zero_config *config);

/* After an update. overflow: whether its gradients did. false: they did, and the scale is already
 * at its minimum. */
bool zero_scaler_update(struct zero_scaler *scaler, const struct kolo_zero_scaling *scaling,
			bool overflow);

#endif
