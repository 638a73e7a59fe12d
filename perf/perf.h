/* What the measurements of perf/ share. */
#ifndef PERF_PERF_H
#define PERF_PERF_H

#include "comm/base/clock.h"

#include <stdint.h>
#include <stdlib.h>

enum { PERF_ROUNDS = 15 };

static inline int perf_ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static inline double perf_median(double *x, int n)
{
	qsort(x, (size_t)n, sizeof(*x), perf_ascending);
	return x[n / 2];
}

/* Nanoseconds of one call of fn(arg): the mean over about 2 ms. */
static inline double perf_time(void (*fn)(void *), void *arg)
{
	int64_t begin = ko_now_ns(), end = begin;
	int n = 0;

	for (; end - begin < 2000000; n++) {
		fn(arg);
		end = ko_now_ns();
	}
	return (double)(end - begin) / n;
}

#endif
