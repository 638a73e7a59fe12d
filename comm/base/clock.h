/* Time for deadlines. */
#ifndef COMM_BASE_CLOCK_H
#define COMM_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* The time of the machine's monotonic clock in nanoseconds (ko_now_ns) or milliseconds (ko_now_ms).
 * All processes of a machine see the same clock. */
static inline int64_t ko_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t ko_now_ms(void)
{
	return ko_now_ns() / 1000000;
}

#endif
