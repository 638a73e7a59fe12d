/* Values of tensors from outside and for outside. The public functions are in kolo_zero.h. */
#ifndef ZERO_STEP_VALUES_H
#define ZERO_STEP_VALUES_H

#include "zero/core/layout.h"

struct kolo_zero;

/* Rounds elements of a tensor from their masters, wherever either is. Between updates. */
int zero_values_from_masters(struct kolo_zero *zero, int tensor, struct zero_part part);

#endif
