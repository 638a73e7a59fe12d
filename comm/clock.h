/* Time for deadlines. */
#ifndef KO_CLOCK_H
#define KO_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Milliseconds of the machine's monotonic clock, the same for all processes of the machine. */
static inline int64_t ko_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

#endif
