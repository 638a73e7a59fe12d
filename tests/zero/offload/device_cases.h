/* The conformance suite of devices (kolo/kolo_zero_device.h): what every one must do, seen through
 * its public side and its table alone. A new device is one more row in test_zero_device.c. */
#ifndef TESTS_ZERO_OFFLOAD_DEVICE_CASES_H
#define TESTS_ZERO_OFFLOAD_DEVICE_CASES_H

#include "kolo/kolo_zero_device.h"

#include <stdbool.h>

struct t_device {
	const char *name;
	int (*open)(struct kolo_zero_device **out);
	bool locks; /* what is pinned is locked as mlock does it, and VmLck counts it */
};

/* Runs each case, on a device of its own. */
void t_device_cases(const struct t_device *row);

/* Work that a device does itself, for one that is not on the host; device_work.c. */
void t_device_work(struct kolo_zero_device *d);

/* Bytes that this process has locked, by its own status; and whether it locks and counts any, which
 * sanitizers prevent. */
size_t t_locked_bytes(void);
bool t_can_lock(void);

#endif
