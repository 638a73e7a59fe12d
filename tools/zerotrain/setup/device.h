/* What --device means: where the engine keeps what the model uses, and where the model computes.
 *
 * The model computes on the host. If the host can read and write the device's memory, as with an
 * arena, the model works there. Otherwise it works on copies in host memory: the values of a tensor
 * come down before it is used, and a gradient goes up before the engine reads it. */
#ifndef TOOLS_ZEROTRAIN_SETUP_DEVICE_H
#define TOOLS_ZEROTRAIN_SETUP_DEVICE_H

#include "kolo/kolo_zero_device.h"
#include "tools/zerotrain/model/inputs.h"
#include "tools/zerotrain/setup/options.h"

struct device {
	struct kolo_zero_device *zero; /* NULL: host memory */
	bool copied;                   /* the host computes on copies */
};

/* Errors: those of the device. device_close in any case. */
int device_open(const struct device_option *option, struct device *out);
void device_close(struct device *d);

/* Memory that the host computes in. It is the device's, so that its budget counts it, unless values
 * there must be copied. Returns NULL if there is none, and kolo_last_error has the reason. Give it
 * back with the same number of bytes; NULL is allowed. */
void *device_take(struct device *d, size_t bytes, const char *what);
void device_give(struct device *d, void *memory, size_t bytes);

/* The same for the model. */
struct room device_room(struct device *d);

#endif
