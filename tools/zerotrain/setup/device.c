/* Opens the device of --device and takes memory from it. */
#include "tools/zerotrain/setup/device.h"

#include <stdlib.h>

int device_open(const struct device_option *option, struct device *out)
{
	int rc = 0;

	*out = (struct device){ 0 };
	if (option->kind == ARENA)
		rc = kolo_zero_arena_open(option->budget, option->bandwidth, &out->zero);
	else if (option->kind == CUDA)
		rc = kolo_zero_cuda_open(option->ordinal, &out->zero);
	out->copied = out->zero && !out->zero->ops->on_host;
	return rc;
}

void device_close(struct device *d)
{
	kolo_zero_device_close(d->zero);
}

static bool is_of_host(const struct device *d)
{
	return !d->zero || d->copied;
}

void *device_take(struct device *d, size_t bytes, const char *what)
{
	void *memory = NULL;

	if (!is_of_host(d)) {
		kolo_zero_device_alloc(d->zero, bytes, what, &memory);
		return memory;
	}
	memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
	if (!memory)
		kolo_error_set(KOLO_ENOMEM, "%zu bytes for %s: out of memory", bytes, what);
	return memory;
}

void device_give(struct device *d, void *memory, size_t bytes)
{
	if (is_of_host(d))
		free(memory);
	else if (memory)
		kolo_zero_device_free(d->zero, memory, bytes);
}

/* ---- For the model --------------------------------------------------------------------------- */

static void *take_activations(void *arg, size_t bytes)
{
	return device_take(arg, bytes, "activations");
}

static void give_activations(void *arg, void *memory, size_t bytes)
{
	device_give(arg, memory, bytes);
}

struct room device_room(struct device *d)
{
	return (struct room){ take_activations, give_activations, d };
}
