/* What a model gets from its caller: the weights, a batch, and memory. model.h explains the
 * letters. */
#ifndef TOOLS_ZEROTRAIN_MODEL_INPUTS_H
#define TOOLS_ZEROTRAIN_MODEL_INPUTS_H

#include "tools/zerotrain/math/real.h"
#include "tools/zerotrain/model/tensors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the weights are. Each function returns 0 or an error, which the model passes on. */
struct weights {
	int (*use)(void *arg, int tensor, const real **out); /* may be read until release */
	int (*release)(void *arg, int tensor);
	int (*gradient)(void *arg, int tensor, const real *gradient); /* read during the call */
	void *arg;
	/* The head and the embedding report their gradients of BYTES apart, the head as tensor
	 * number tensor_count. Otherwise they report their sum */
	bool apart;
};

/* What goes through the model at once. */
struct batch {
	/* B, from 0, and T, from 1; up to sizes.batch and sizes.context. With sizes.spread T is of
	 * this rank's part, an even number, whose places part_place gives */
	int count, length;
	const token *in;      /* [B, T] */
	const token *targets; /* [B, T]: the token after each; NULL: no loss is wanted */
	const uint64_t *keys; /* [B]: of dropout, for each sequence; NULL: nothing is dropped */
	/* Of documents that do not see each other: [B, T] whether the loss counts each target,
	 * NULL: all; and the token with which each token's document begins, NULL: the first one. A
	 * document's places count from there. Not with sizes.spread */
	const uint8_t *counted;
	const int32_t *begins;
};

/* The place in its sequence of token number t of a rank's part of `length` tokens. Without a
 * context group that is t. With one a sequence is cut into twice as many chunks as there are ranks,
 * R, and rank r has numbers r and 2 R - 1 - r. */
static inline size_t part_place(const struct sizes *s, size_t length, size_t t)
{
	size_t half = length / 2, rank = (size_t)s->context_rank, ranks = (size_t)s->context_size;

	if (ranks < 2)
		return t;
	return t < half ? rank * half + t : (2 * ranks - 1 - rank) * half + t - half;
}

/* Places of a text that are computed in one call lie in one piece of PIECE places: from first to
 * first + count - 1, where first / PIECE == (first + count - 1) / PIECE. */
enum { PIECE = 32 };

struct piece {
	int first, count; /* count 0: nothing of this text */
	const token *in;  /* [count] */
};

/* Blocks first to end - 1, before them the embedding if first is 0, and after them the head if end
 * is L. It keeps `buffers` batches. */
struct part {
	int first, end, buffers;
};

/* What backward is for: inputs and weights, or one of both. */
enum half { BOTH, INPUTS, WEIGHTS };

/* What a context group did. */
struct model_around {
	uint64_t sent_bytes; /* by this rank, of keys and values, queries and heads */
	double waited_us;    /* for these, beside products or between them */
};

/* Where the model's own memory comes from. take returns bytes aligned to 64, or NULL if there are
 * none. give gets the same number of bytes back. */
struct room {
	void *(*take)(void *arg, size_t bytes);
	void (*give)(void *arg, void *memory, size_t bytes);
	void *arg;
};

#endif
