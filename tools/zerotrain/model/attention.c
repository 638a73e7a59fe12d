/* Causal attention: each place gets a mixture of the values of the places before it and of its own.
 *
 * For each head q, k and v [T, D / H] are its parts of qkv: shares [T, T] = softmax(q k' / sqrt(D /
 * H)), heads = shares v. QUERIES rows of shares are computed at a time. */
#include "tools/zerotrain/model/inside.h"

#include <math.h>
#include <string.h>

/* One head of one sequence. */
struct head {
	const real *q, *k, *v; /* rows are Q apart */
	struct columns at;     /* of these in a row */
	real *shares;          /* [T, T] */
	size_t width, offset; /* D / H; of its part of a row of [N, D / G], from the first row on */
	size_t t, stride;     /* T, Q */
	real factor;          /* 1 / sqrt(D / H) */
};

static struct head find_head(const struct model *m, const struct slot *s, int sequence, int number)
{
	size_t t = (size_t)m->now->batch.length, first = (size_t)sequence * t;
	struct columns at = columns_of(m, (size_t)number);
	const real *row = s->qkv + first * m->pitch;

	return (struct head){
		.q = row + at.q,
		.k = row + at.k,
		.v = row + at.v,
		.at = at,
		.shares = s->shares + ((size_t)sequence * m->heads + (size_t)number) * t * t,
		.width = m->head,
		.offset = first * m->width + (size_t)number * m->head,
		.t = t,
		.stride = m->pitch,
		.factor = (real)(1 / sqrt((double)m->head)),
	};
}

static size_t rows_from(const struct head *h, size_t first)
{
	return h->t - first < QUERIES ? h->t - first : QUERIES;
}

/* y: the head's part of heads, whose rows are `stride` apart. */
static void attend_head(const struct model *m, const struct head *h, real *y, size_t stride)
{
	for (size_t first = 0; first < h->t; first += QUERIES) {
		size_t rows = rows_from(h, first), seen = first + rows;
		real *shares = h->shares + first * h->t;

		multiply(rows, seen, h->width, 1,
			 (struct matrix){ h->q + first * h->stride, h->stride, false },
			 (struct matrix){ h->k, h->stride, true }, 0, shares, h->t);
		m->loops->softmax(shares, rows, first, h->t, h->factor);
		multiply(rows, h->width, seen, 1, (struct matrix){ shares, h->t, false },
			 (struct matrix){ h->v, h->stride, false }, 0, y + first * stride, stride);
	}
}

/* dy: the derivative of y. row: of the sequence's first row of qkv. Keys and values of several
 * heads add up, so they begin as zeros. */
static void attend_head_back(const struct model *m, const struct head *h, const real *dy,
			     size_t stride, real *row)
{
	real *dq = row + h->at.q, *dk = row + h->at.k, *dv = row + h->at.v;

	for (size_t first = 0; first < h->t; first += QUERIES) {
		size_t rows = rows_from(h, first), seen = first + rows;
		const real *shares = h->shares + first * h->t;
		struct matrix dy_rows = { dy + first * stride, stride, false };

		multiply(seen, h->width, rows, 1, (struct matrix){ shares, h->t, true }, dy_rows, 1,
			 dv, h->stride);
		multiply(rows, seen, h->width, 1, dy_rows, (struct matrix){ h->v, h->stride, true },
			 0, m->dshares, h->t);
		m->loops->softmax_back(shares, m->dshares, rows, first, h->t, h->factor);
		multiply(rows, h->width, seen, 1, (struct matrix){ m->dshares, h->t, false },
			 (struct matrix){ h->k, h->stride, false }, 0, dq + first * h->stride,
			 h->stride);
		multiply(seen, h->width, rows, 1, (struct matrix){ m->dshares, h->t, true },
			 (struct matrix){ h->q + first * h->stride, h->stride, false }, 1, dk,
			 h->stride);
	}
}

void attend(struct model *m, const struct slot *s)
{
	for (int b = 0; b < m->now->batch.count; b++)
		for (int i = 0; i < (int)m->heads; i++) {
			struct head h = find_head(m, s, b, i);

			attend_head(m, &h, s->heads + h.offset, m->width);
		}
}

void attend_back(struct model *m, const struct slot *s, const real *dheads, real *dqkv)
{
	memset(dqkv, 0, m->now->rows * m->pitch * sizeof(*dqkv));
	for (int b = 0; b < m->now->batch.count; b++)
		for (int i = 0; i < (int)m->heads; i++) {
			struct head h = find_head(m, s, b, i);

			attend_head_back(m, &h, dheads + h.offset, m->width,
					 dqkv + (size_t)b * h.t * m->pitch);
		}
}
