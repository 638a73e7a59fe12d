/* A model for tests of the engine: three dense layers with tanh between, mean squared error,
 * backward by hand. Sizes divide by nothing. Arithmetic in float, whatever the parameters' type;
 * samples are made from their number, so that any split over ranks and micro-steps has the same. */
#ifndef TESTS_ZERO_STEP_MLP_H
#define TESTS_ZERO_STEP_MLP_H

#include "kolo/kolo_zero.h"

enum {
	MLP_LAYERS = 3,
	MLP_TENSORS = 2 * MLP_LAYERS + 2,
	MLP_ROOM = 4096, /* elements of all tensors at most */
};

/* Fills the description of its tensors: a weight and a bias for each layer, one that is frozen (it
 * scales the input) and one that no step uses. */
void mlp_tensors(struct kolo_zero_tensor *out, enum kolo_type type);

/* Sets the first values, the same on all ranks. */
void mlp_init(struct kolo_zero *zero);

/* Elements of a tensor. */
size_t mlp_size(int tensor);

/* One micro-step on samples [first, first + n): forward, backward, gradients times scale in the
 * order that `order` gives layers in (0: last to first, else mixed up), without kolo_zero_step.
 * Returns 0 or the engine's error. */
int mlp_micro_step(struct kolo_zero *zero, enum kolo_type type, size_t first, size_t n, float scale,
		   unsigned order);

/* The loss of samples [first, first + n) for given parameters (of all tensors, one after the
 * other), and the gradient. */
double mlp_loss(const float *parameters, size_t first, size_t n, float *gradient);

/* Elements of all tensors. */
size_t mlp_total(void);

#endif
