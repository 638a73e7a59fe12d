/* Causal attention: each place gets a mixture of the values of the places before it and of its own.
 *
 * For each head q, k and v [T, D / H] are its parts of qkv: shares [T, T] = softmax(q k' / sqrt(D /
 * H)), heads = shares v. QUERIES rows of shares are computed at a time. */
#include "tools/zerotrain/model/inside.h"

#include <string.h>

/* One head of one sequence. */
struct head {
	const struct layout *layout;
	const real *q, *k, *v; /* rows are Q apart */
	struct columns at;     /* of these in a row */
	size_t row, column;    /* its first row, and its first column of heads */
	size_t shares;         /* where its shares [T, T] are */
	size_t t;              /* T */
};

static struct head find_head(struct span span, const real *qkv, size_t sequence, size_t number)
{
	const struct layout *l = span.layout;
	struct columns at = columns_of(l, number);
	const real *row = qkv + sequence * span.length * l->pitch;

	return (struct head){
		.layout = l,
		.q = row + at.q,
		.k = row + at.k,
		.v = row + at.v,
		.at = at,
		.row = sequence * span.length,
		.column = number * l->head,
		.shares = (sequence * l->heads + number) * span.length * span.length,
		.t = span.length,
	};
}

static size_t rows_from(const struct head *h, size_t first)
{
	return h->t - first < QUERIES ? h->t - first : QUERIES;
}

/* y: the head's part of heads. */
static void attend_head(const struct model *m, const struct head *h, real *shares, real *y)
{
	const struct layout *l = h->layout;

	for (size_t first = 0; first < h->t; first += QUERIES, shares += QUERIES * h->t) {
		size_t rows = rows_from(h, first), seen = first + rows;

		multiply(rows, seen, l->head, 1,
			 (struct matrix){ h->q + first * l->pitch, l->pitch, false },
			 (struct matrix){ h->k, l->pitch, true }, 0, shares, h->t);
		m->loops->softmax(shares, rows, first, h->t, l->factor);
		multiply(rows, l->head, seen, 1, (struct matrix){ shares, h->t, false },
			 (struct matrix){ h->v, l->pitch, false }, 0, y + first * l->width,
			 l->width);
	}
}

/* dy: the derivative of y. row: of the sequence's first row of qkv. Keys and values of several
 * heads add up, so they begin as zeros. */
static void attend_head_back(const struct model *m, const struct head *h, const real *shares,
			     const real *dy, real *row)
{
	real *dq = row + h->at.q, *dk = row + h->at.k, *dv = row + h->at.v;
	const struct layout *l = h->layout;

	for (size_t first = 0; first < h->t; first += QUERIES, shares += QUERIES * h->t) {
		size_t rows = rows_from(h, first), seen = first + rows;
		struct matrix dy_rows = { dy + first * l->width, l->width, false };

		multiply(seen, l->head, rows, 1, (struct matrix){ shares, h->t, true }, dy_rows, 1,
			 dv, l->pitch);
		multiply(rows, seen, l->head, 1, dy_rows, (struct matrix){ h->v, l->pitch, true },
			 0, m->dshares, h->t);
		m->loops->softmax_back(shares, m->dshares, rows, first, h->t, l->factor);
		multiply(rows, l->head, seen, 1, (struct matrix){ m->dshares, h->t, false },
			 (struct matrix){ h->k, l->pitch, false }, 0, dq + first * l->pitch,
			 l->pitch);
		multiply(seen, l->head, rows, 1, (struct matrix){ m->dshares, h->t, true },
			 (struct matrix){ h->q + first * l->pitch, l->pitch, false }, 1, dk,
			 l->pitch);
	}
}

void attend(const struct model *m, struct span span, const real *qkv, real *shares, real *heads)
{
	for (size_t b = 0; b < span.count; b++)
		for (size_t i = 0; i < span.layout->heads; i++) {
			struct head h = find_head(span, qkv, b, i);

			attend_head(m, &h, shares + h.shares,
				    heads + h.row * span.layout->width + h.column);
		}
}

void attend_back(const struct model *m, struct span span, const real *qkv, const real *shares,
		 const real *dheads, real *dqkv)
{
	const struct layout *l = span.layout;

	memset(dqkv, 0, span.count * span.length * l->pitch * sizeof(*dqkv));
	for (size_t b = 0; b < span.count; b++)
		for (size_t i = 0; i < l->heads; i++) {
			struct head h = find_head(span, qkv, b, i);

			attend_head_back(m, &h, shares + h.shares,
					 dheads + h.row * l->width + h.column,
					 dqkv + h.row * l->pitch);
		}
}
