/* The functions that programs call on a device (kolo_zero_device_alloc, _copy, _get, _close). They
 * check arguments, so a device need not. */
#include "zero/base/basics.h"

#include "kolo/kolo_zero_device.h"

#include <stdbool.h>

static bool is_device(const struct kolo_zero_device *device)
{
	return device && device->ops;
}

void kolo_zero_device_get(struct kolo_zero_device *device, struct kolo_zero_device_info *out)
{
	*out = (struct kolo_zero_device_info){ 0 };
	if (is_device(device))
		device->ops->get(device, out);
}

int kolo_zero_device_alloc(struct kolo_zero_device *device, size_t bytes, const char *what,
			   void **out)
{
	if (!out)
		return kolo_error_set(KOLO_EINVAL, "kolo_zero_device_alloc: out is NULL");
	*out = NULL;
	if (!is_device(device))
		return kolo_error_set(KOLO_EINVAL, "kolo_zero_device_alloc: there is no device");
	if (!what || bytes == 0)
		return kolo_error_set(
			KOLO_EINVAL,
			"kolo_zero_device_alloc: %zu bytes for '%.60s': want some, and a name",
			bytes, what ? what : "");
	return device->ops->allocate(device, bytes, what, out);
}

void kolo_zero_device_free(struct kolo_zero_device *device, void *memory, size_t bytes)
{
	if (is_device(device) && memory)
		device->ops->release(device, memory, bytes);
}

int kolo_zero_device_copy(struct kolo_zero_device *device, enum kolo_zero_lane lane, void *to,
			  const void *from, size_t bytes)
{
	uint64_t ticket = 0;
	int rc;

	if (!is_device(device))
		return kolo_error_set(KOLO_EINVAL, "kolo_zero_device_copy: there is no device");
	if (lane != KOLO_ZERO_DOWN && lane != KOLO_ZERO_UP)
		return kolo_error_set(
			KOLO_EINVAL,
			"kolo_zero_device_copy: lane %d: want KOLO_ZERO_DOWN or KOLO_ZERO_UP",
			(int)lane);
	if (bytes == 0)
		return 0;
	if (!to || !from)
		return kolo_error_set(KOLO_EINVAL, "kolo_zero_device_copy: %s is NULL",
				      to ? "from" : "to");
	rc = device->ops->copy(device, lane, to, from, bytes, &ticket);
	return rc < 0 ? rc : device->ops->wait(device, lane, ticket);
}

void kolo_zero_device_close(struct kolo_zero_device *device)
{
	if (is_device(device))
		device->ops->close(device);
}
