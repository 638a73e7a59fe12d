/* Memory of gathered tensors. What one leaves is kept for the next one of its length. */
#ifndef ZERO_OFFLOAD_REGIONS_H
#define ZERO_OFFLOAD_REGIONS_H

#include <stddef.h>

struct kolo_zero;
struct zero_tensor;

/* Memory for the values of a sharded tensor, which then is ZERO_UPLOADING. Errors: KOLO_ENOMEM, and
 * the device's own. */
int zero_gathered_open(struct kolo_zero *zero, struct zero_tensor *tensor);

/* The tensor is ZERO_GONE. */
void zero_gathered_close(struct kolo_zero *zero, struct zero_tensor *tensor);

/* Memory of the device. If it has none left, spare memory is given back to it first. Errors:
 * KOLO_ENOMEM, and the device's own. */
int zero_device_ask(struct kolo_zero *zero, size_t bytes, const char *what, void **out);

/* Gives all spare memory back. */
void zero_spares_close(struct kolo_zero *zero);

#endif
