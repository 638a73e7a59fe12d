/* Parameters of stage 3 in a micro-step: kolo_zero_use, kolo_zero_release, and what is gathered
 * ahead of use. */
#ifndef ZERO_STEP_PARAMS_H
#define ZERO_STEP_PARAMS_H

struct kolo_zero;

/* Lets all gathered tensors go, before an update. */
void zero_params_drop(struct kolo_zero *zero);

/* The end of a micro-step. Its uses are the order to expect from now on; what was gathered for
 * nothing goes. */
int zero_trace_end(struct kolo_zero *zero);

#endif
