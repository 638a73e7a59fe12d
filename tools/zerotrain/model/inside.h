/* What the files of the model share: where activations are, linear layers, attention, blocks.
 * model.h explains the letters. */
#ifndef TOOLS_ZEROTRAIN_MODEL_INSIDE_H
#define TOOLS_ZEROTRAIN_MODEL_INSIDE_H

#include "tools/zerotrain/model/inputs.h"
#include "tools/zerotrain/model/loops.h"
#include "tools/zerotrain/model/products.h"
#include "tools/zerotrain/model/tensors.h"

/* Rows of attention that are computed together. They see no place after their last one, which saves
 * half of the square. There are enough of them for a fast matrix product. */
enum { QUERIES = 32 };

/* What forward keeps of a block. */
struct slot {
	real *in; /* [N, D] its input; of a segment's first block in model.inputs */
	real *mean1, *rstd1, *mean2, *rstd2; /* [N] */
	real *normed1, *heads, *mid,
		*normed2;  /* [N, D]: heads is what attention gives, mid in + projected */
	real *qkv;         /* [N, 3 D]: queries, keys, values */
	real *shares;      /* [B, H, T, T] what each place takes from those before it */
	real *wide, *bent; /* [N, 4 D] before and after GELU */
};

struct model {
	struct sizes sizes;
	struct weights weights;
	struct room room;
	const struct loops *loops;
	struct batch batch; /* of the last forward */
	size_t rows;        /* N of it */
	struct slot *slots; /* [segment] */
	real **inputs;      /* [segments] of [N, D]: what each segment begins with */
	int nsegments;
	real *last;            /* [N, D] what the last block gives */
	real *mean, *rstd;     /* [N] of the last normalization, */
	real *normed;          /* [N, D] and what it gives */
	real *logits;          /* [N, V]; after the loss their derivative */
	real *dstream;         /* [N, D] the derivative of the residual stream, */
	real *dnarrow, *dwide; /* [N, D], [N, 4 D] of what is beside it; */
	real *dshares;         /* [QUERIES, T] of shares */
	real *dweight, *dbias; /* of the tensor that is just computed: [4 D, D], [4 D]; */
	real *dbytes;          /* [V, D] of the embedding, to which head and input both add, */
	real *dplaces;         /* [C, D] */
	char *arena;           /* all of the above, except slots and inputs */
	size_t arena_len;
};

/* y [N, out] = x [N, in] w' + b, with w [out, in] and b tensors number `tensor` and the next. */
int linear(struct model *m, int tensor, const real *x, size_t in, real *y, size_t out);

/* dx [N, in] = dy w, and the gradients of w and b. */
int linear_back(struct model *m, int tensor, const real *x, size_t in, const real *dy, size_t out,
		real *dx);

/* y [N, D] = normalized x. Gain and bias are tensors number `tensor` and the next. Keeps mean and
 * rstd [N]. */
int normalize(struct model *m, int tensor, const real *x, real *y, real *mean, real *rstd);

/* Adds to dx [N, D], and the gradients of gain and bias. */
int normalize_back(struct model *m, int tensor, const real *x, real *mean, real *rstd,
		   const real *dy, real *dx);

/* heads of a slot from its qkv, which leaves shares; dqkv [N, 3 D] from dheads [N, D] and these. */
void attend(struct model *m, const struct slot *s);
void attend_back(struct model *m, const struct slot *s, const real *dheads, real *dqkv);

/* x, which may be y, is dropped into y, [N, D]. `site` is a number for each place of dropout. */
void drop_rows(struct model *m, int site, const real *x, real *y);

/* block_forward: out [N, D] from the input in the slot of a block. block_backward: replaces the
 * derivative of its output in dstream by that of its input. */
int block_forward(struct model *m, int block, const struct slot *s, real *out);
int block_backward(struct model *m, int block, const struct slot *s);

/* The memory of a model, whose sizes are set. False: there is none. */
bool plan_memory(struct model *m);

#endif
