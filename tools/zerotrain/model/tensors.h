/* The tensors of a GPT: their number, names and shapes, and their values before training. model.h
 * explains the letters. */
#ifndef TOOLS_ZEROTRAIN_MODEL_TENSORS_H
#define TOOLS_ZEROTRAIN_MODEL_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the ranks of a context group, which have parts of the same sequences, see each other's keys
 * and values: not at all, because no sequence is divided; round a ring; or each rank sees all
 * places of some heads. */
enum spread { UNSPREAD, RING, ULYSSES };

/* The kinds of GPT. A LLAMA has no biases. Its places are turns of queries and keys instead of an
 * embedding, its normalization has no mean, and its MLP is narrow(SiLU(gate) up). */
enum kind { GPT2, LLAMA };

/* Tensors by number: two embeddings, PER_BLOCK for each block, the last normalization and the head.
 * In blocks and the normalization they are pairs of a matrix (or a gain) and the bias after it.
 * Numbers are those of any kind; blocks_have says which tensors a model has. */
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
	enum kind kind;
	int layers, dim, heads, context; /* L, D, H, C; heads divides dim */
	int values;                      /* V, of a token */
	int kv_heads; /* K, heads of keys and values; divides heads. 0: heads. GPT-2: 0 */
	int inner;    /* F, columns between the layers of the MLP. 0: 4 D */
	bool untied;  /* the head is a tensor of its own, and not the embedding */
	double eps;   /* that normalizations add to the variance. 0: 1e-5 */
	double theta; /* the base of LLAMA's turns. 0: 10000 */
	int batch;    /* B at most */
	int segment;  /* blocks whose activations are kept at a time, 1 to layers; others are
			 computed again */
	double dropout;
	uint64_t seed;
	/* Tensor parallelism: this rank's place among the ranks that have parts of tensors. Size 0
	 * or 1: tensors are whole */
	int tensor_size, tensor_rank;
	/* The segments of layers that have the same bits on any number of ranks, as in struct
	 * kolo_tp_config; 0: none */
	int segments;
	/* Context parallelism: this rank's place among the ranks that have parts of sequences. Size
	 * 0 or 1: sequences are whole */
	enum spread spread;
	int context_size, context_rank;
	bool serial; /* keys and values don't travel while products are computed */
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

/* Numbers are below tensor_count. */
int tensor_count(const struct sizes *s);
struct tensor_shape tensor_shape_of(const struct sizes *s, int tensor);

/* Whether blocks first to end - 1, with the embedding before the first block and the head after the
 * last one, use a tensor. */
bool blocks_have(const struct sizes *s, int first, int end, int tensor);

/* Whether a model has a tensor. */
bool tensor_is_there(const struct sizes *s, int tensor);

/* The tensor that the head multiplies with. */
int head_tensor(const struct sizes *s);

/* The whole model's K, F, eps and theta. */
int kv_heads_of(const struct sizes *s);
int inner_of(const struct sizes *s);
double eps_of(const struct sizes *s);
double theta_of(const struct sizes *s);

/* Rows of the tensors QKV and WIDEN of a block. */
size_t qkv_rows(const struct sizes *s);
size_t wide_rows(const struct sizes *s);

/* The index in the whole tensor of element i of this rank's part. */
size_t whole_index(const struct sizes *s, int tensor, size_t i);

/* Elements [first, first + n) of the part's values before training, a function of the seed and of
 * their place in the whole tensor. Embeddings and matrices are from a normal distribution, gains
 * are 1, biases 0. */
void tensor_init(const struct sizes *s, int tensor, size_t first, size_t n, float *out);

#endif
