/* The work of updating elements of one tensor, described for whoever does it: the device, or the
 * host's threads. */
#ifndef ZERO_STEP_UPDATE_WORK_H
#define ZERO_STEP_UPDATE_WORK_H

#include "zero/core/layout.h"

#include "kolo/kolo_zero_device.h"

struct kolo_zero;
struct zero_slice;

/* What an update multiplies with. */
struct zero_scalars {
	float factor;                     /* of gradients */
	struct kolo_zero_scalars *groups; /* of each group */
	double *ratios; /* of each tensor, Lamb's trust ratio; NULL: rates are the groups' */
};

/* An update of elements whose state is on the device. values: where new values go; NULL: masters
 * are the values. The caller may change its kind. */
struct kolo_zero_work zero_update_on_device(const struct kolo_zero *zero, int tensor, struct zero_part part,
					    char *values, const struct zero_scalars *update);

/* An update of a slice that is offloaded. The caller may change its kind. */
struct kolo_zero_work zero_update_offloaded(const struct kolo_zero *zero, int tensor,
					    const struct zero_slice *slice,
					    const struct zero_scalars *update);

#endif
