/* A GPT over tokens: embeddings of token and place, blocks of attention and MLP, each with
 * normalization before it, a last normalization, and the embedding again as the head. Or a LLAMA
 * (tensors.h). It runs forward and backward of a batch on one thread.
 *
 * The model does not know where its weights are. It asks a struct weights for the tensor that it
 * uses next, and reports which gradient is ready, as kolo_zero.h needs it. Tests give it plain
 * arrays.
 *
 * A rank may have some of the blocks (a pipeline), and parts of tensors (a tensor group). Then it
 * has parts, and each part keeps the activations of several batches at a time, in buffers.
 *
 * Letters in shapes: B sequences in a batch, T tokens in each, N = B T, D elements in a hidden
 * state, H heads, K heads of keys and values, F columns inside the MLP, L blocks, V values of a
 * token, C tokens of context (T is at most C). A linear layer of weight w [out, in] is y = x w' +
 * b. G is the size of the tensor group, R that of the context group. O are the rows of the residual
 * stream that this rank has: N, or with sequence parallelism N / G. */
#ifndef TOOLS_ZEROTRAIN_MODEL_MODEL_H
#define TOOLS_ZEROTRAIN_MODEL_MODEL_H

#include "kolo/kolo_parallel.h"
#include "tools/zerotrain/model/inputs.h"
#include "tools/zerotrain/model/tensors.h"

struct model;

/* The ranks that share the work on this model. */
struct groups {
	struct kolo_tp *tensor;    /* by model_group */
	struct kolo_comm *context; /* of sizes.context_size ranks; NULL: this one alone */
};

/* A tensor group of the ranks of comm; NULL: this rank alone. segments as in struct kolo_tp_config.
 * Give it to kolo_tp_destroy, after the models that use it. */
int model_group(struct kolo_comm *comm, bool sequence, int segments, struct kolo_tp **out);

/* Makes a model with all the memory that it will ever use. It has parts[nparts]. With sizes.spread
 * each rank of the context group has 1 / R of the rows of a batch, and 2 R divides C. With ULYSSES
 * R divides H / G and K / G. The memory comes from `room`, which must outlive the model; NULL means
 * host memory. Give the model to model_destroy, which accepts NULL. Returns NULL if out of
 * memory. */
struct model *model_create(const struct sizes *sizes, const struct part *parts, int nparts,
			   const struct weights *weights, struct groups groups,
			   const struct room *room);
void model_destroy(struct model *model);

/* Bytes of activations, and of what backward needs beside them. */
size_t model_memory(const struct model *model);

/* What went over the context group. */
void model_around_get(const struct model *model, struct model_around *out);

/* Elements of what goes from part to part, of a full batch: O times D. */
size_t model_boundary(const struct model *model);

/* Computes a part for a batch, and keeps in `buffer` what backward needs, also of the batch itself,
 * which must stay. input [O, D] is what the part before it gave, and must stay, too; output [O, D]
 * is for the next one. The first part has no input, and the last one no output: NULL. *loss is the
 * last part's: the mean loss, 0 for an empty batch. The gradient will be that of `scale` times the
 * loss. */
int model_forward(struct model *model, int part, int buffer, const struct batch *batch,
		  double scale, const real *input, real *output, double *loss);

/* Backward of the batch in a buffer: for inputs, for weights, or for both. With sizes.halves it
 * comes in halves, inputs first. Each gradient is reported once. doutput [O, D] is the derivative
 * of the output; dinput becomes that of the input. They are NULL where there is no such tensor, and
 * for weights alone. */
int model_backward(struct model *model, int part, int buffer, enum half half, const real *doutput,
		   real *dinput);

/* ---- Growing texts ---- */

/* Computes a part for places of sizes.texts texts, of which all earlier places were computed by
 * such calls since place 0. It keeps their keys and values, so each place is computed once. Place 0
 * begins a text anew. input and output as in model_forward, of model_grown rows. Nothing is kept
 * for a backward pass, and what other buffers keep stays.
 *
 * With sizes.segments the logits have the bits of model_forward, for batches whose length
 * is a multiple of PIECE. */
int model_extend(struct model *model, int part, const struct piece *pieces, const real *input,
		 real *output);

/* Rows of such a call, without division over the tensor group. */
size_t model_grown(const struct model *model, const struct piece *pieces);

/* The logits [V / G] of the last place of a text, after model_extend of the last part. */
const real *model_next(const struct model *model, int part, int text);

/* Bytes of keys and values: 2 L texts C K D / H / G e, with C in whole pieces, for the blocks here.
 */
size_t model_cache(const struct model *model);

/* The logits [V / G] of a row, after model_forward of the last part without targets. */
const real *model_logits(const struct model *model, int part, int buffer, size_t row);

#endif
