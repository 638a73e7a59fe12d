/* All optimizers. A new one is a line here, its update in NAME.h, its properties in NAME.c (row.h),
 * and a value at the end of enum kolo_zero_optimizer. Kernels, GPU kernels, configs and tools
 * follow. */
#ifndef ZERO_OPTIMIZERS_LIST_H
#define ZERO_OPTIMIZERS_LIST_H

#include "zero/optimizers/adagrad.h"
#include "zero/optimizers/adam.h"
#include "zero/optimizers/lamb.h"
#include "zero/optimizers/lion.h"
#include "zero/optimizers/row.h"
#include "zero/optimizers/sgd.h"

/* X(value, name, moments, whole): in the order of the enum. `moments` is the most that an element
 * has. whole: 1 if the update is one pass, which reads the gradient and changes the moments; 0 if
 * another pass has done that before. */
#define ZERO_OPTIMIZERS(X)                                                                         \
	X(KOLO_ZERO_ADAMW, adamw, 2, 1)                                                            \
	X(KOLO_ZERO_ADAM, adam, 2, 1)                                                              \
	X(KOLO_ZERO_SGD, sgd, 1, 1)                                                                \
	X(KOLO_ZERO_LION, lion, 1, 1)                                                              \
	X(KOLO_ZERO_ADAGRAD, adagrad, 1, 1)                                                        \
	X(KOLO_ZERO_LAMB, lamb, 2, 0)

#define ZERO_COUNT(value, name, moments, whole) +1
enum { ZERO_NOPTIMIZERS = 0 ZERO_OPTIMIZERS(ZERO_COUNT) };
#undef ZERO_COUNT

/* The optimizer; NULL if there is none of that number. */
const struct zero_optimizer *zero_optimizer_row(enum kolo_zero_optimizer optimizer);

/* The most moments that an element has. */
int zero_optimizer_most(enum kolo_zero_optimizer optimizer);

/* Does a first pass compute the moments, and a trust ratio for each tensor? */
bool zero_optimizer_has_ratios(enum kolo_zero_optimizer optimizer);

#endif
