/* A GPT over bytes: embeddings of byte and place, blocks of attention and MLP, each with
 * normalization before it, a last normalization, and the embedding again as the head. It runs
 * forward and backward of a batch on one thread.
 *
 * The model does not know where its weights are. It asks a struct weights for the tensor that it
 * uses next, and reports which gradient is ready, as kolo_zero.h needs it. Tests give it plain
 * arrays.
 *
 * Letters in shapes: B sequences in a batch, T bytes in each, N = B T, D elements in a hidden
 * state, H heads, L blocks, V = 256 values of a byte, C bytes of context (T is at most C). A linear
 * layer of weight w [out, in] is y = x w' + b. */
#ifndef TOOLS_ZEROTRAIN_MODEL_MODEL_H
#define TOOLS_ZEROTRAIN_MODEL_MODEL_H

#include "tools/zerotrain/model/inputs.h"
#include "tools/zerotrain/model/tensors.h"

struct model;

/* Makes a model with all the memory that it will ever use. The memory comes from `room`, which must
 * outlive the model; NULL means host memory. Give the model to model_destroy, which accepts NULL.
 * Returns NULL if out of memory. */
struct model *model_create(const struct sizes *sizes, const struct weights *weights,
			   const struct room *room);
void model_destroy(struct model *model);

/* Bytes of activations, and of what backward needs beside them. */
size_t model_memory(const struct model *model);

/* Computes the mean loss of a batch, 0 if it is empty. Keeps what backward needs, also of the batch
 * itself, which must stay. The gradient will be that of `scale` times the loss. */
int model_forward(struct model *model, const struct batch *batch, double scale, double *loss);

/* The gradients of the batch of the last forward, each reported once. */
int model_backward(struct model *model);

/* The logits [V] of the byte after in[length - 1]. */
int model_predict(struct model *model, const uint8_t *in, int length, real *logits);

#endif
