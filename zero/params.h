/* Parameters of stage 3 in a micro-step: kolo_zero_use, kolo_zero_release, and what is gathered ahead of use. */
#ifndef ZERO_PARAMS_H
#define ZERO_PARAMS_H

#include <stddef.h>

struct kolo_zero;
struct zero_tensor;

/* Memory for the values of a sharded tensor, which then is ZERO_RISING; and none any more. */
int zero_params_open(struct kolo_zero *zero, struct zero_tensor *tensor);
void zero_params_close(struct kolo_zero *zero, struct zero_tensor *tensor);
/* Memory of the device. If it has none left, spare memory is given back to it first. Errors: KOLO_ENOMEM, and the device's own. */
int zero_device_ask(struct kolo_zero *zero, size_t bytes, const char *what, void **out);
void zero_spares_close(struct kolo_zero *zero);

/* Lets all gathered tensors go, before an update. */
void zero_params_drop(struct kolo_zero *zero);

/* The end of a micro-step. Its uses are the order to expect from now on; what was gathered for nothing goes. */
int zero_trace_end(struct kolo_zero *zero);

#endif
