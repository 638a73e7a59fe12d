/* Work (kolo_zero_device.h) in host memory: the loops of kernels.h, on threads, in blocks that stay
 * in the first-level cache from one loop to the next. Bits are those of one thread, and of the
 * plain loops. */
#ifndef ZERO_OPTIM_WORK_H
#define ZERO_OPTIM_WORK_H

#include "kolo/kolo_zero_device.h"

struct zero_kernels;
struct zero_squares;
struct zero_threads;

/* Numbers that work of kind KOLO_ZERO_WORK_DIGITS gives for a block. */
enum { ZERO_BLOCK_DIGITS = 4 };

/* Done when it returns. Never fails. */
void zero_work_run(struct zero_threads *threads, const struct zero_kernels *kernels,
		   const struct kolo_zero_work *work);

/* Adds the squares of n elements of a type, in any order. Done when it returns. Never fails. */
void zero_work_squares(struct zero_threads *threads, const struct zero_kernels *kernels,
		       const void *from, enum kolo_type type, size_t n, struct zero_squares *sum);

/* Blocks of n elements. */
static inline size_t zero_blocks(size_t n)
{
	return n / KOLO_ZERO_BLOCK + (n % KOLO_ZERO_BLOCK != 0);
}

#endif
