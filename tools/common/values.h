/* Elements by definition: the values of each type, and what a collective makes of them, one
 * element at a time. This is slow and shares no line with the library. ringbench and the tests
 * compare the library with it. */
#ifndef TOOLS_COMMON_VALUES_H
#define TOOLS_COMMON_VALUES_H

#include "kolo/kolo.h"

#include <stdbool.h>

enum { VALUES_NTYPES = KOLO_F8E5M2 + 1, VALUES_NOPS = KOLO_AVG + 1 };

bool values_is_integer(enum kolo_type type);

/* The element at p, of a floating type. */
double values_decode(enum kolo_type type, const void *p);

/* The element of a floating type nearest to x, ties to even; F8E4M3 saturates. */
void values_encode(enum kolo_type type, double x, void *out);

/* A factor: f for floating types, u (wrapping) for integers. */
struct values_scale {
	double f;
	uint64_t u;
};

/* What the first rank of an addition contributes: src, scaled for AVG and (premul) sums with a
 * factor. */
void values_first(enum kolo_type type, enum kolo_op op, bool premul, struct values_scale s,
		  const void *src, void *out);

/* acc = acc combined with src, rounded as the header promises. */
void values_combine(enum kolo_type type, enum kolo_op op, bool premul, struct values_scale s,
		    void *acc, const void *src);

/* The last step: integers' AVG divides by nranks. */
void values_finish(enum kolo_type type, enum kolo_op op, int nranks, void *acc);

/* The factor that AVG over nranks uses. */
struct values_scale values_avg_scale(enum kolo_type type, int nranks);

#endif
