/* The norm of the reduced gradients, as sums of squares of blocks; and which of them is not
 * finite. */
#ifndef ZERO_STEP_NORM_H
#define ZERO_STEP_NORM_H

#include "zero/core/engine.h"

/* Asks a device of its own how it adds up. */
int zero_norm_open(struct kolo_zero *zero);

/* Adds up squares of gradients that are stored already, as far as that is known without waiting:
 * beside backward. */
int zero_square_downloaded(struct kolo_zero *zero);

/* The sum of squares of this rank's part of the reduced gradients. Waits for all of them. */
int zero_square_sum(struct kolo_zero *zero, struct zero_squares *out);

/* The first of this rank's reduced gradients that is not finite; *out stays as it is if there is
 * none. */
int zero_find_nonfinite(struct kolo_zero *zero, struct zero_nonfinite *out);

#endif
