/* Causal attention: each place gets a mixture of the values of the places before it and of its own.
 *
 * For each head q, k and v [T, D / H] are its parts of qkv: shares [T, T] = softmax(q k' / sqrt(D /
 * H)), heads = shares v. Some rows of shares are computed at a time (queries_of). */
#include "tools/zerotrain/model/inside.h"

/* One head of one document. */
struct head {
	const struct layout *layout;
	const real *q, *k, *v; /* rows are Q apart */
	struct columns at;     /* of these in a row */
	size_t row, column;    /* its first row, and its first column of heads */
	size_t shares;         /* where its shares [T, T] are */
	size_t t;              /* T */
	bool adds;             /* to the derivatives of its keys and values: others have them too */
};

/* Rows of a document that begins at row `first` of all. Without documents it is a sequence. */
static size_t rows_of(struct span span, size_t first)
{
	size_t end = (first / span.length + 1) * span.length, n = 1;

	if (!span.begins)
		return span.length;
	while (first + n < end && span.begins[first + n] == span.begins[first])
		n++;
	return n;
}

/* Where a document's shares [t, t] are: those of its sequence have room for [T, T] of each head. */
static size_t shares_of(struct span span, size_t first, size_t number)
{
	size_t sequence = first / span.length, from = first % span.length;

	return ((sequence * span.layout->heads + number) * span.length + from) * span.length;
}

static struct head find_head(struct span span, const real *qkv, size_t first, size_t number)
{
	const struct layout *l = span.layout;
	struct columns at = columns_of(l, number);
	const real *row = qkv + first * l->pitch;

	return (struct head){
		.layout = l,
		.q = row + at.q,
		.k = row + at.k,
		.v = row + at.v,
		.at = at,
		.row = first,
		.column = number * l->head,
		.shares = shares_of(span, first, number),
		.t = rows_of(span, first),
		.adds = number % (l->heads / l->kv_heads) > 0,
	};
}

static size_t rows_from(const struct model *m, const struct head *h, size_t first)
{
	size_t most = queries_of(m);

	return h->t - first < most ? h->t - first : most;
}

/* y: the head's part of heads. */
static void attend_head(const struct model *m, const struct head *h, real *shares, real *y)
{
	const struct layout *l = h->layout;
	size_t rows;

	for (size_t first = 0; first < h->t; first += rows, shares += rows * h->t) {
		size_t seen;

		rows = rows_from(m, h, first);
		seen = first + rows;
		multiply(rows, seen, l->head, 1,
			 (struct matrix){ h->q + first * l->pitch, l->pitch, false },
			 (struct matrix){ h->k, l->pitch, true }, 0, shares, h->t);
		m->loops->softmax(shares, rows, first, h->t, l->factor);
		multiply(rows, l->head, seen, 1, (struct matrix){ shares, h->t, false },
			 (struct matrix){ h->v, l->pitch, false }, 0, y + first * l->width,
			 l->width);
	}
}

/* dy: the derivative of y. row: of the sequence's first row of qkv. The last rows, which see all
 * keys and values, come first: what the others find is added. */
static void attend_head_back(const struct model *m, const struct head *h, const real *shares,
			     const real *dy, real *row)
{
	real *dq = row + h->at.q, *dk = row + h->at.k, *dv = row + h->at.v;
	const struct layout *l = h->layout;

	for (size_t seen = h->t, rows; seen > 0; seen -= rows) {
		size_t first = (seen - 1) / queries_of(m) * queries_of(m);
		const real *part = shares + first * h->t;
		struct matrix dy_rows = { dy + first * l->width, l->width, false };
		real keep = h->adds || seen < h->t;

		rows = seen - first;
		multiply(seen, l->head, rows, 1, (struct matrix){ part, h->t, true }, dy_rows, keep,
			 dv, l->pitch);
		multiply(rows, seen, l->head, 1, dy_rows, (struct matrix){ h->v, l->pitch, true },
			 0, m->dshares, h->t);
		m->loops->softmax_back(part, m->dshares, rows, first, h->t, l->factor);
		multiply(rows, l->head, seen, 1, (struct matrix){ m->dshares, h->t, false },
			 (struct matrix){ h->k, l->pitch, false }, 0, dq + first * l->pitch,
			 l->pitch);
		multiply(seen, l->head, rows, 1, (struct matrix){ m->dshares, h->t, true },
			 (struct matrix){ h->q + first * l->pitch, l->pitch, false }, keep, dk,
			 l->pitch);
	}
}

void attend(const struct model *m, struct span span, const real *qkv, real *shares, real *heads)
{
	size_t all = span.count * span.length;

	for (size_t first = 0; first < all; first += rows_of(span, first))
		for (size_t i = 0; i < span.layout->heads; i++) {
			struct head h = find_head(span, qkv, first, i);

			attend_head(m, &h, shares + h.shares,
				    heads + h.row * span.layout->width + h.column);
		}
}

void attend_back(const struct model *m, struct span span, const real *qkv, const real *shares,
		 const real *dheads, real *dqkv)
{
	size_t all = span.count * span.length;
	const struct layout *l = span.layout;

	for (size_t first = 0; first < all; first += rows_of(span, first))
		for (size_t i = 0; i < l->heads; i++) {
			struct head h = find_head(span, qkv, first, i);

			attend_head_back(m, &h, shares + h.shares,
					 dheads + h.row * l->width + h.column,
					 dqkv + h.row * l->pitch);
		}
}
