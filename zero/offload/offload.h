/* Offloaded state: masters, moments and gradients in host memory, or masters and moments in
 * files. */
#ifndef ZERO_OFFLOAD_OFFLOAD_H
#define ZERO_OFFLOAD_OFFLOAD_H

#include "zero/core/layout.h"

struct kolo_zero;
struct zero_tensor;

/* Elements of a tensor with their state in host memory. */
struct zero_slice {
	struct zero_part part;
	float *master, *moment[2];
	const char *grad;
	char *values; /* receives the updated values, in the tensor's type; NULL if nothing is
			 updated */
};

typedef int zero_slice_fn(struct kolo_zero *zero, int tensor, const struct zero_slice *slice,
			  void *arg);

/* A pass over state in files stands between begin and end, and visits elements in the order of
 * updates. */
int zero_offload_begin(struct kolo_zero *zero);
int zero_offload_end(struct kolo_zero *zero);

/* Calls fn for offloaded elements of a tensor, slice by slice. With `update` a slice has values,
 * which are copied to where they belong after fn. */
int zero_offload_walk(struct kolo_zero *zero, int tensor, struct zero_part part, bool update,
		      zero_slice_fn *fn, void *arg);

/* Copies elements of a tensor's state to floats of the host, and from them, wherever they are.
 * state: 0 for masters, 1 and 2 for moments. Not during a pass. */
int zero_state_get(struct kolo_zero *zero, const struct zero_tensor *t, int state,
		   struct zero_part part, float *out);
int zero_state_put(struct kolo_zero *zero, struct zero_tensor *t, int state, struct zero_part part,
		   const float *from);

/* Files and buffers for offloaded state. Errors: KOLO_ESYS, KOLO_ENOMEM, KOLO_ENOTSUP. */
int zero_offload_open(struct kolo_zero *zero);
void zero_offload_close(struct kolo_zero *zero);

#endif
