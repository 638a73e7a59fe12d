/* Attention of the queries of one chunk with the keys of one chunk after another. What was found so
 * far is kept as the largest score m of each query, the sum l of exponents e^(s - m), and the sum o
 * of values times these. A further chunk with largest score m' and sums l' and o' makes of it, with
 * M = max(m, m'):
 *
 *     l = l e^(m - M) + l' e^(m' - M)        o = o e^(m - M) + o' e^(m' - M)
 *
 * At the end heads are o / l, and m + log l is kept: the logarithm of the sum of all exponents.
 * From it backward finds the shares of any chunk again, e^(s - (m + log l)), so that no square of
 * shares is kept. QUERIES rows are computed at a time. */
#include "tools/zerotrain/model/inside.h"

#include <math.h>

static size_t rows_from(const struct pair *p, size_t first)
{
	return p->n - first < QUERIES ? p->n - first : QUERIES;
}

/* Keys that rows from `first` on see, at most. In the same chunk none after their last one. */
static size_t seen_from(const struct pair *p, size_t first)
{
	return p->same ? first + rows_from(p, first) : p->n;
}

/* Scores of some rows, before the factor. */
static void find_scores(const struct model *m, const struct pair *p, size_t first)
{
	multiply(rows_from(p, first), seen_from(p, first), p->head, 1,
		 (struct matrix){ p->q + first * p->pitch, p->pitch, false },
		 (struct matrix){ p->k, p->kv_width, true }, 0, m->scores, p->n);
}

/* The number of a row of scores from which on it counts all keys it has: one less for each row
 * before. */
static size_t place_in(const struct pair *p, size_t first)
{
	return p->same ? first : p->n;
}

void pair_forward(const struct model *m, const struct pair *p)
{
	for (size_t first = 0; first < p->n; first += QUERIES) {
		size_t rows = rows_from(p, first), seen = seen_from(p, first);
		real *o = p->heads + first * p->width;

		find_scores(m, p, first);
		m->loops->merge(&(struct merge){ .most = p->most + first,
						 .sums = p->sums + first,
						 .o = o,
						 .width = p->head,
						 .stride = p->width },
				m->scores, rows, place_in(p, first), seen, p->n, p->factor);
		multiply(rows, p->head, seen, 1, (struct matrix){ m->scores, p->n, false },
			 (struct matrix){ p->v, p->kv_width, false }, 1, o, p->width);
	}
}

void pair_finish(const struct pair *p)
{
	for (size_t i = 0; i < p->n; i++) {
		real scale = 1 / p->sums[i];

		for (size_t k = 0; k < p->head; k++)
			p->heads[i * p->width + k] *= scale;
		p->sums[i] = p->most[i] + (real)log((double)p->sums[i]);
	}
}

void pair_backward(const struct model *m, const struct pair *p, const struct pair_back *b)
{
	for (size_t first = 0; first < p->n; first += QUERIES) {
		size_t rows = rows_from(p, first), seen = seen_from(p, first);
		const real *dheads = b->dheads + first * p->width;
		struct matrix dy = { dheads, p->width, false };

		find_scores(m, p, first);
		m->loops->shares(m->scores, rows, place_in(p, first), seen, p->n, p->factor,
				 p->sums + first);
		multiply(seen, p->head, rows, 1, (struct matrix){ m->scores, p->n, true }, dy, 1,
			 b->dv, p->kv_width);
		multiply(rows, seen, p->head, 1, dy, (struct matrix){ p->v, p->kv_width, true }, 0,
			 m->dshares, p->n);
		m->loops->shares_back(m->scores, m->dshares, rows, seen, p->n, p->factor,
				      p->most + first);
		multiply(rows, p->head, seen, 1, (struct matrix){ m->dshares, p->n, false },
			 (struct matrix){ p->k, p->kv_width, false }, 1, b->dq + first * p->pitch,
			 p->pitch);
		multiply(seen, p->head, rows, 1, (struct matrix){ m->dshares, p->n, true },
			 (struct matrix){ p->q + first * p->pitch, p->pitch, false }, 1, b->dk,
			 p->kv_width);
	}
}
