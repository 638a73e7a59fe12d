/* The loops over elements: updates of the optimizers, sums of squares, the search for values that
 * are not finite.
 *
 * kernels.c is compiled once for each instruction set, and all give the same bits. Each element is
 * computed by itself, in the order that is written, without fused multiply-add. Sums have lanes of
 * their own. */
#ifndef ZERO_OPTIM_KERNELS_H
#define ZERO_OPTIM_KERNELS_H

#include "zero/optim/squares.h"
#include "zero/optimizers/list.h"

#include <stdbool.h>

enum { ZERO_LANES = KOLO_ZERO_LANES };

/* n elements: p parameters or masters, m and v moments (those that the optimizer has), g gradients.
 * Nothing overlaps. */
typedef void zero_update_fn(float *p, float *m, float *v, const float *g, size_t n,
			    const struct kolo_zero_scalars *s);

/* Sums of elements: element i is in lane i mod ZERO_LANES. Calls follow each other by multiples of
 * ZERO_LANES elements. */
struct zero_lanes {
	double sum[ZERO_LANES];
};

struct zero_kernels {
	zero_update_fn *update[ZERO_NOPTIMIZERS];
	/* The moments of Lamb, and the squares of parameters and updates */
	void (*lamb_moments)(const float *p, float *m, float *v, const float *g, size_t n,
			     const struct kolo_zero_scalars *s, struct zero_lanes *p2,
			     struct zero_lanes *u2);
	void (*add_squares)(struct zero_lanes *lanes, const float *x, size_t n);
	/* Adds the squares of x in any order; n is at most 2^20 */
	void (*squares)(struct zero_squares *sum, const float *x, size_t n);
	void (*add)(float *sum, const float *x, size_t n);
	/* Whether all of n elements are finite */
	bool (*finite_16)(const uint16_t *x, size_t n,
			  uint16_t exponent); /* of KOLO_F16, BF16: all bits of it are set */
	bool (*finite_32)(const float *x, size_t n);
	/* A checksum of n elements of 2 or 4 bytes, the first of which has number `first` in its
	 * tensor. It adds up a number for each element and its index. So parts can be summed by
	 * different ranks, and their sums added. A single changed element always changes the sum */
	uint64_t (*checksum)(const void *x, size_t size, size_t n, uint64_t first);
};

/* Those for this processor. */
const struct zero_kernels *zero_kernels_best(void);

/* The ones that this build and this processor have, the plain one first, then NULL. */
const struct zero_kernels *const *zero_kernels_list(void);

/* The lanes together, always in the same order. */
double zero_lanes_sum(const struct zero_lanes *lanes);

#endif
