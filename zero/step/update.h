/* The update of all tensors. */
#ifndef ZERO_STEP_UPDATE_H
#define ZERO_STEP_UPDATE_H

struct kolo_zero;

/* Updates all tensors with gradients times factor, and starts to gather what the stage keeps
 * whole. */
int zero_update(struct kolo_zero *zero, float factor);

#endif
