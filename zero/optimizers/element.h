/* What the updates of single elements share, on the host (C) and on GPUs (C++ of CUDA).
 *
 * The update of one element of optimizer NAME is
 *
 *     ZERO_UPDATE(NAME)  { ... }     in NAME.h
 *
 * It updates p[i], the parameter or master, with the gradient g[i] and the moments m[i] and v[i],
 * as far as the optimizer has them (list.h). `moving` is true if there is a first moment. Each
 * operation is written once, in torch's order, and rounds once: no fused multiply-add. So hosts and
 * GPUs give the same bits. */
#ifndef ZERO_OPTIMIZERS_ELEMENT_H
#define ZERO_OPTIMIZERS_ELEMENT_H

#include "kolo/kolo_zero_device.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* A file for GPUs defines its own. */
#ifndef KO_INLINE
#define KO_INLINE static inline
#endif

struct zero_optimizer; /* its properties: row.h */

#define ZERO_UPDATE(name)                                                                          \
	KO_INLINE void zero_##name(size_t i, float *p, float *m, float *v, const float *g,         \
				   const struct kolo_zero_scalars *s, bool moving)

/* Returns g + weight decay times p, if weight decay is L2 regularization as in torch. */
KO_INLINE float zero_decayed(float g, float p, const struct kolo_zero_scalars *s)
{
	return g + s->decay * p;
}

#endif
