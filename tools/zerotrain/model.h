/* A GPT over bytes: embeddings of byte and place, blocks of attention and MLP with normalization in front of each, a last
 * normalization, and a head that is the embedding again. Forward and backward of a batch, on one thread.
 *
 * It does not know where its weights are: it tells a struct weights which one it uses next and which gradient is ready, as
 * kolo_zero.h wants it; tests give it plain arrays instead.
 *
 * Letters in shapes: B sequences in a batch, T bytes in each, N = B T, D elements in a hidden state, H heads, L blocks,
 * V = 256 values of a byte, C bytes of context that T may be at most. A linear layer of weight w [out, in] is y = x w' + b. */
#ifndef MODEL_H
#define MODEL_H

#include "loops.h"

#include <stdbool.h>

enum { VALUES = 256 };

/* Tensors by number: two embeddings, PER_BLOCK for each block, and the last normalization. But for the embeddings they are pairs of
 * a matrix (or a gain) and the bias behind it. */
enum tensor { BYTES, PLACES, FIRST_BLOCK };
enum block_tensor { NORM1, QKV = 2, PROJECT = 4, NORM2 = 6, WIDEN = 8, NARROW = 10, PER_BLOCK = 12 };

struct sizes {
	int layers, dim, heads, context; /* L, D, H, C; heads divides dim */
	int batch;                       /* B at most */
	int segment; /* blocks whose activations are kept at a time, 1 to layers; others are computed again */
	double dropout;
	uint64_t seed;
};

/* One tensor: what it is called and how large it is. */
struct tensor_shape {
	char name[24];
	size_t rows, columns; /* columns 0: a vector of `rows` */
	size_t n;             /* elements */
};

int tensor_count(const struct sizes *s);
struct tensor_shape tensor_shape_of(const struct sizes *s, int tensor);

/* Elements [first, first + n) of what training begins with, a function of the seed: embeddings and matrices from a normal
 * distribution, gains 1, biases 0. */
void tensor_init(const struct sizes *s, int tensor, size_t first, size_t n, float *out);

/* Where the weights are. Each returns 0, or what went wrong, which the model passes on. */
struct weights {
	int (*use)(void *arg, int tensor, const real **out); /* may be read until release */
	int (*release)(void *arg, int tensor);
	int (*gradient)(void *arg, int tensor, const real *gradient); /* read during the call */
	void *arg;
};

/* What goes through the model at once. */
struct batch {
	int count, length;      /* B, from 0, and T, from 1; up to sizes.batch and sizes.context */
	const uint8_t *in;      /* [B, T] */
	const uint8_t *targets; /* [B, T]: what comes behind each byte */
	const uint64_t *keys;   /* [B]: of dropout, for each sequence; NULL: nothing is dropped */
};

/* Where the model's own memory comes from: bytes aligned to 64, NULL: there are none. They are given back as many. */
struct room {
	void *(*take)(void *arg, size_t bytes);
	void (*give)(void *arg, void *memory, size_t bytes);
	void *arg;
};

struct model;

/* Makes a model, with all the memory that it will ever use, from `room`, which stays longer; NULL: the host's. The caller gives it to
 * model_destroy, which accepts NULL. NULL: out of memory. */
struct model *model_create(const struct sizes *sizes, const struct weights *weights, const struct room *room);
void model_destroy(struct model *model);

/* Bytes of activations, and of what backward needs beside them. */
size_t model_memory(const struct model *model);

/* Computes the mean loss of a batch, 0 of an empty one, and keeps what backward needs: of the batch itself too, which must stay.
 * The gradient is to be that of `scale` times the loss. */
int model_forward(struct model *model, const struct batch *batch, double scale, double *loss);

/* The gradients of the batch of the last forward, each reported once. */
int model_backward(struct model *model);

/* The logits [V] of the byte behind in[length]. */
int model_predict(struct model *model, const uint8_t *in, int length, real *logits);

#endif
