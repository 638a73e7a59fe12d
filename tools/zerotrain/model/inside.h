/* What the files of the model share: where activations are, linear layers, attention, blocks.
 * model.h explains the letters. */
#ifndef TOOLS_ZEROTRAIN_MODEL_INSIDE_H
#define TOOLS_ZEROTRAIN_MODEL_INSIDE_H

#include "kolo/kolo_parallel.h"
#include "tools/zerotrain/math/loops.h"
#include "tools/zerotrain/math/products.h"
#include "tools/zerotrain/model/inputs.h"
#include "tools/zerotrain/model/tensors.h"

/* What messages between ranks have. */
static inline enum kolo_type real_type(void)
{
	return sizeof(real) == sizeof(float) ? KOLO_F32 : KOLO_F64;
}

/* Rows of attention that are computed together. They see no place after their last one, which saves
 * up to half of the square. There are enough of them for a fast matrix product. */
enum { QUERIES = 64 };

/* What forward keeps of a block. */
struct slot {
	real *in; /* [O, D] its input; of a segment's first block in kept.inputs */
	real *mean1, *rstd1, *mean2, *rstd2; /* [O] */
	real *normed1, *normed2;             /* [N, D] */
	real *qkv;                           /* [N, Q]: queries, keys, values */
	real *shares; /* [B, H / G, T, T] what each place takes from those before it; with RING */
	real *sums;   /* [B, H / G, T] the logarithms of sums of exponents instead */
	real *heads;  /* [N, D / G] what attention gives */
	real *mid;    /* [O, D] in + projected */
	real *wide, *bent; /* [N, W], [N, F / G] before and after GELU or SwiGLU */
	/* Derivatives of what linear layers give, by layer. If backward comes in halves, they are
	 * kept. Otherwise they are model.beside and model.dwide */
	real *dqkv, *dproject, *dwide, *dnarrow; /* [N, Q], [N, D], [N, W], [N, D] */
};

/* The columns of qkv and heads: of K heads of keys, and H heads with queries, `head` elements each.
 */
struct layout {
	enum kind kind;
	size_t head, heads, kv_heads;
	size_t width, pitch, kv_width; /* of all H heads; Q: a row of qkv; of all keys */
	real factor;                   /* 1 / sqrt(head) */
};

/* What forward keeps of a batch in a part. */
struct kept {
	struct batch batch;
	size_t rows;       /* N of it */
	size_t first, own; /* O of them, from the first one on */
	struct slot *slots;
	real **inputs; /* [segments] of [O, D]: what each segment begins with */
	real *last;    /* [O, D] what the last block gives: before the head, or the caller's */
	/* Of texts that grow, instead of batch: where rows are in them; NULL: rows are a batch's */
	const struct grown *grown;
	/* The last part's: of the last normalization, and what it gives [N, D]; [N, V / G], after
	 * the loss their derivative */
	real *mean, *rstd, *normed, *logits;
};

/* The rows of a call of model_extend. With segments a text has a tile of PIECE rows, so that each
 * place has the row of its products that it has in training; other rows are not used. */
struct grown {
	const struct piece *pieces;
	int *row_of;           /* [texts] the row of the first place of a text's piece */
	int32_t *ids, *places; /* [G] the token and the place of each row */
};

struct own_part {
	struct part is;
	int segment, nsegments; /* blocks of a segment */
	struct kept *kept;      /* [buffers], and one behind these for texts that grow */
};

/* The ranks that have parts of the same sequences, and memory for what goes round them. e: the keys
 * and values of N rows, 2 N kv_width elements. */
struct around {
	struct kolo_comm *comm;   /* NULL: this rank alone */
	struct kolo_queue *queue; /* on which messages travel while products are computed */
	size_t ranks, rank;
	struct layout some;         /* with ULYSSES: H / G / R and K / G / R heads */
	real *kv[2], *dkv[2], *own; /* with RING: [e] that are here and that come; of own sums */
	real *most;                 /* [B, H / G, T] the largest scores; in backward dheads heads */
	real *qkv, *out, *in;       /* with ULYSSES: [N, Q] before, on its way, and after */
	struct model_around counts;
};

struct model {
	struct sizes sizes;
	struct weights weights;
	struct room room;
	struct kolo_tp *group;
	bool alone;           /* no tensor group, and no segments */
	struct layout own;    /* H / G and K / G heads; width: D / G */
	size_t values;        /* V / G */
	size_t inner, wide;   /* F / G; W: rows of WIDEN / G: F / G or twice as many */
	struct around around; /* of a context group */
	double eps;
	const struct loops *loops;
	struct own_part *parts;
	int nparts;
	struct own_part *part; /* that is computed now, */
	struct kept *now;      /* and of which batch */
	int32_t *ids;          /* [N] tokens as integers */
	real *dstream;         /* [O, D] the derivative of the residual stream, */
	real *beside, *dwide;  /* [N, D], [N, W] and what is beside it; */
	real *dheads;          /* [N, D / G] of heads, behind room for [N, Q] in dwide */
	real *dshares;         /* [QUERIES, T] of shares */
	real *scores;          /* [QUERIES, T] with RING */
	real *dweight, *dbias; /* of the tensor that is just computed: the largest of a block; */
	real *dbytes;          /* [V / G, D] of the embedding, to which head and input both add, */
	real *dplaces;         /* [R, C, D], R segments of rows; of GPT-2, */
	real *dnorm;           /* [R, 2 D]: of a gain and the bias after it */
	real *turns;           /* [C, D / H] of LLAMA: cosines and sines of each place */
	struct grown grown;
	size_t grown_rows; /* G: PIECE for each text, or a few more */
	/* [blocks here, texts, C, kv_width], C in whole pieces: of all places of growing texts */
	real *keys, *values_kept;
	char *arena; /* all of the above, except lists */
	size_t arena_len;
};

/* QUERIES, or with segments a piece, so that each place has the bits that it has in a text that
 * grows. */
static inline size_t queries_of(const struct model *m)
{
	return m->sizes.segments > 0 ? PIECE : QUERIES;
}

/* C in whole pieces. */
static inline size_t whole_pieces(const struct model *m)
{
	return ((size_t)m->sizes.context + PIECE - 1) / PIECE * PIECE;
}

/* Where a head's query, key and value are in a row of qkv. GPT-2 has all queries first, then keys,
 * then values. A LLAMA has for each head of keys the queries that go with it, its key, and its
 * value. */
struct columns {
	size_t q, k, v;
};

static inline struct columns columns_of(const struct layout *l, size_t head)
{
	size_t w = l->head, each = l->heads / l->kv_heads, first = head / each * (each + 2) * w;

	if (l->kind == GPT2)
		return (struct columns){ head * w, l->width + head * w, 2 * l->width + head * w };
	return (struct columns){ first + head % each * w, first + each * w,
				 first + (each + 1) * w };
}

/* The place in its text of row number `row` of all N. */
static inline size_t place_of(const struct model *m, size_t row)
{
	const struct batch *b = &m->now->batch;
	const struct grown *g = m->now->grown;

	if (g)
		return (size_t)g->places[row];
	return part_place(&m->sizes, (size_t)b->length, row % (size_t)b->length) -
	       (b->begins ? (size_t)b->begins[row] : 0);
}

/* Turns queries and keys of qkv or dqkv [N, Q] by their places; sign -1: back. Without turns it
 * does nothing (rotary.c). */
void turn_rows(const struct model *m, real *qkv, real sign);
void fill_turns(struct model *m);

/* This rank's rows of x [N, D]. */
static inline real *own_rows(const struct model *m, real *x)
{
	return x + m->now->first * (size_t)m->sizes.dim;
}

/* y [N, out] = x [N, in] w' + b, with w [out, in] and b tensors number `tensor` and the next, if
 * the model has it. Column-parallel: x is gathered, out is this rank's. `fused` as in struct
 * kolo_tp_layer. Row-parallel: in is this rank's, and y is added up. */
int column(struct model *m, int tensor, real *x, size_t in, real *y, size_t out, size_t fused);
int row(struct model *m, int tensor, const real *x, size_t in, real *y, size_t out);

/* dx [N, in] = dy w; and the gradients of w and b, unless backward comes in halves. */
int column_back(struct model *m, int tensor, const real *x, size_t in, const real *dy, size_t out,
		size_t fused, real *dx);
int row_back(struct model *m, int tensor, const real *x, size_t in, real *dy, size_t out, real *dx);

/* The other half: the gradients of w and b. */
int column_weights(struct model *m, int tensor, const real *x, size_t in, const real *dy,
		   size_t out, size_t fused);
int row_weights(struct model *m, int tensor, const real *x, size_t in, real *dy, size_t out);

/* logits [N, V / G] = x bytes', and back: dx, and with INPUTS or WEIGHTS only one half. dw goes to
 * dbytes. */
int unembed(struct model *m, real *x, real *logits);
int unembed_back(struct model *m, enum half half, const real *x, const real *dlogits, real *dx);

/* y [O, D] = normalized x [O, D]. Gain and bias are tensors number `tensor` and the next. Keeps
 * mean and rstd [O]. */
int normalize(struct model *m, int tensor, const real *x, real *y, real *mean, real *rstd);

/* Adds to dx [O, D], and the gradients of gain and bias. */
int normalize_back(struct model *m, int tensor, const real *x, real *mean, real *rstd,
		   const real *dy, real *dx);

/* What attention goes over: sequences of T rows in a layout, and documents in them, as a struct
 * batch has them. */
struct span {
	const struct layout *layout;
	size_t count, length;
	const int32_t *begins;
};

/* heads [count T, width] from qkv [count T, Q], which leaves shares [count, H, T, T]; dqkv from
 * dheads and these. */
void attend(const struct model *m, struct span span, const real *qkv, real *shares, real *heads);
void attend_back(const struct model *m, struct span span, const real *qkv, const real *shares,
		 const real *dheads, real *dqkv);

/* Attention of this rank's part of sequences: heads of a slot from its qkv, and dqkv [N, Q] from
 * dheads [N, D / G]. qkv and dqkv have turns. Collective over the context group (ring.c,
 * ulysses.c). */
int ring_attend(struct model *m, const struct slot *s);
int ring_attend_back(struct model *m, const struct slot *s, const real *dheads, real *dqkv);
int ulysses_attend(struct model *m, const struct slot *s);
int ulysses_attend_back(struct model *m, const struct slot *s, const real *dheads, real *dqkv);

/* A head's queries of a chunk and the keys and values of a chunk, n of each, in rows of several
 * heads (merge.c). */
struct pair {
	size_t n, head;
	bool same; /* chunk: then no query sees a later key */
	const real *q, *k, *v;
	size_t pitch, kv_width; /* from row to row of q, and of k and v */
	real *heads;            /* what comes of it, in rows of `width` */
	size_t width;
	/* [n] In forward the largest scores and the sums of exponents so far. In backward sums of
	 * dheads heads, and the logarithms of the sums */
	real *most, *sums;
	real factor;
};
struct pair_back {
	const real *dheads; /* as heads */
	real *dq, *dk, *dv; /* to which it adds, in rows as q, k and v have them */
};

/* Adds a pair to what was found so far. At first heads and sums are 0, and most is the least. After
 * the last one pair_finish makes of them heads and logarithms. */
void pair_forward(const struct model *m, const struct pair *p);
void pair_finish(const struct pair *p);
void pair_backward(const struct model *m, const struct pair *p, const struct pair_back *back);

/* Sets the rows of a call of model_extend (extend.c). */
void place_pieces(struct model *m, const struct piece *pieces);

/* heads of a slot from its qkv and from the keys and values of earlier places, to which this
 * block's are added (extend.c). */
void attend_grown(struct model *m, int block, const struct slot *s);

/* x, which may be y, is dropped into y, [O, D]. `site` is a number for each place of dropout. */
void drop_rows(struct model *m, int site, const real *x, real *y);

/* block_forward: out [O, D] from the input in the slot of a block. block_backward: replaces the
 * derivative of its output in dstream by that of its input. block_weights: the other half. */
int block_forward(struct model *m, int block, const struct slot *s, real *out);
int block_backward(struct model *m, int block, const struct slot *s);
int block_weights(struct model *m, int block, const struct slot *s);

/* The memory of a model, whose sizes and parts are set. False: there is none. */
bool plan_memory(struct model *m);

#endif
