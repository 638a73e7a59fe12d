/* The update of some elements of one tensor, as work for the device or for the host's threads. */
#ifndef ZERO_STEP_UPDATE_WORK_H
#define ZERO_STEP_UPDATE_WORK_H

#include "zero/core/layout.h"

#include "kolo/kolo_zero_device.h"

struct kolo_zero;
struct zero_slice;

/* The factors of an update. */
struct zero_scalars {
	float factor;                     /* of gradients */
	struct kolo_zero_scalars *groups; /* of each group */
	double *ratios; /* of each tensor, Lamb's trust ratio; NULL: rates are the groups' */
};

/* An update of elements whose state is on the device. values: the place for new values; NULL:
 * masters are the values. The caller may change the kind of the work. */
struct kolo_zero_work zero_update_on_device(const struct kolo_zero *zero, int tensor,
					    struct zero_part part, char *values,
					    const struct zero_scalars *update);

/* An update of an offloaded slice. The caller may change the kind of the work. */
struct kolo_zero_work zero_update_offloaded(const struct kolo_zero *zero, int tensor,
					    const struct zero_slice *slice,
					    const struct zero_scalars *update);

#endif
