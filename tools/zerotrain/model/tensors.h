/* The tensors of a GPT: their number, names and shapes, and their values before training. model.h
 * explains the letters. */
#ifndef TOOLS_ZEROTRAIN_MODEL_TENSORS_H
#define TOOLS_ZEROTRAIN_MODEL_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tensors by number: two embeddings, PER_BLOCK for each block, and the last normalization. Except
 * for the embeddings they are pairs of a matrix (or a gain) and the bias after it. */
enum tensor { BYTES, PLACES, FIRST_BLOCK };
enum block_tensor {
	NORM1,
	QKV = 2,
	PROJECT = 4,
	NORM2 = 6,
	WIDEN = 8,
	NARROW = 10,
	PER_BLOCK = 12
};

struct sizes {
	int layers, dim, heads, context; /* L, D, H, C; heads divides dim */
	int values;                      /* V, of a token */
	int batch;                       /* B at most */
	int segment; /* blocks whose activations are kept at a time, 1 to layers; others are
			computed again */
	double dropout;
	uint64_t seed;
	/* Tensor parallelism: this rank's place among the ranks that have parts of tensors. Size 0
	 * or 1: tensors are whole */
	int tensor_size, tensor_rank;
	/* The segments of layers that have the same bits on any number of ranks, as in struct
	 * kolo_tp_config; 0: none */
	int segments;
	bool halves; /* backward for weights comes apart from that for inputs */
	int texts;   /* that can grow side by side; 0: none */
};

/* One tensor: what it is called, and how large this rank's part of it is. */
struct tensor_shape {
	char name[24];
	size_t rows, columns; /* columns 0: a vector of `rows` */
	size_t n;             /* elements */
	bool divided;         /* each rank of the tensor group has a part; otherwise all of it */
	int dim, fused;       /* divided: 0: by rows, 1: by columns; of this many matrices each */
};

int tensor_count(const struct sizes *s);
struct tensor_shape tensor_shape_of(const struct sizes *s, int tensor);

/* Whether blocks first to end - 1, with the embedding before the first block and the head after the
 * last one, use a tensor. */
bool blocks_have(const struct sizes *s, int first, int end, int tensor);

/* The index in the whole tensor of element i of this rank's part. */
size_t whole_index(const struct sizes *s, int tensor, size_t i);

/* Elements [first, first + n) of the part's values before training, a function of the seed and of
 * their place in the whole tensor. Embeddings and matrices are from a normal distribution, gains
 * are 1, biases 0. */
void tensor_init(const struct sizes *s, int tensor, size_t first, size_t n, float *out);

#endif
