/* Column-parallel and row-parallel layers (kolo_tp_column_forward and so on).
 *
 * With segments every product has the same sizes on any number of ranks: the divided dimension is
 * cut into pieces, one for each segment, and for each of the fused layers. Products whose results
 * are added up go to a sum of their own for each segment. */
#include "zero/base/basics.h"
#include "zero/parallel/tp.h"

#include <string.h>

/* How a dimension of n is cut. Piece p belongs to segment p % tp->segments. */
struct pieces {
	size_t count, width;
};

static struct pieces cut(const struct kolo_tp *tp, size_t n, size_t fused)
{
	size_t count = tp->config.segments ? tp->segments * (fused ? fused : 1) : 1;

	return (struct pieces){ count, n / count };
}

static int check_layer(const struct kolo_tp *tp, const struct kolo_tp_layer *l, bool column)
{
	size_t divided = column ? l->out : l->in;
	size_t count = cut(tp, divided, column ? l->fused : 1).count;

	if (l->reserved[0] || l->reserved[1])
		return kolo_error_set(KOLO_EINVAL, "a layer's reserved words are not zero");
	if (l->fused > 1 && (!column || l->out % l->fused))
		return kolo_error_set(
			KOLO_EINVAL,
			"a %s-parallel layer of %zu outputs on this rank, of %zu fused layers: %s",
			column ? "column" : "row", l->out, l->fused,
			column ? "want a multiple of them" : "only a column-parallel one can be");
	if (divided % count)
		return kolo_error_set(
			KOLO_EINVAL,
			"a %s-parallel layer of %zu %s on this rank, in %zu segments%s: want a multiple of %zu",
			column ? "column" : "row", divided, column ? "outputs" : "inputs",
			tp->segments, count > tp->segments ? " of fused layers" : "", count);
	if (tp->config.sequence && l->rows % tp->size)
		return kolo_error_set(
			KOLO_EINVAL,
			"a layer of %zu rows with sequence parallelism on %zu ranks: want a multiple of the ranks",
			l->rows, tp->size);
	return 0;
}

/* ---- Products -------------------------------------------------------------------------------- */

static char *move(const struct kolo_tp *tp, const void *at, size_t elements)
{
	return (char *)at + elements * tp->elem;
}

/* c [m, n] = a b, or c + a b. */
static void multiply(const struct kolo_tp *tp, size_t m, size_t n, size_t k,
		     struct kolo_tp_matrix a, struct kolo_tp_matrix b, bool add, void *c,
		     size_t stride)
{
	tp->config.product(tp->config.arg, m, n, k, &a, &b, add, c, stride);
}

/* y [rows, out] = x w', or y + x w', for columns of y. */
static void multiply_outputs(const struct kolo_tp *tp, const struct kolo_tp_layer *l,
			     struct pieces p, const void *x, const void *w, bool add, void *y)
{
	for (size_t i = 0, at = 0; i < p.count; i++, at += p.width)
		multiply(tp, l->rows, p.width, l->in, (struct kolo_tp_matrix){ x, l->in, 0 },
			 (struct kolo_tp_matrix){ move(tp, w, at * l->in), l->in, 1 }, add,
			 move(tp, y, at), l->out);
}

/* Where products of a divided dimension put their sums: in a vector for each segment, of n elements
 * behind each other; the caller's own if one is enough. */
static int begin_sum(struct kolo_tp *tp, size_t n, void *result, char **out)
{
	int rc = tp->segments > 1 ? zero_tp_room(tp, tp->segments * n * tp->elem) : 0;

	*out = tp->segments > 1 ? tp->sums : result;
	return rc;
}

/* Adds up the segments' vectors, into the result [rows, columns], and this over the group. */
static int end_sum(struct kolo_tp *tp, char *sums, void *result, size_t rows, size_t columns)
{
	if (sums != result) {
		zero_tp_fold(tp->config.type, sums, tp->segments, rows * columns);
		memcpy(result, sums, rows * columns * tp->elem);
	}
	return kolo_tp_reduce(tp, result, rows, columns);
}

/* Each row of y becomes the bias: the product adds to it. */
static void spread(const struct kolo_tp *tp, const void *bias, void *y, size_t rows, size_t n)
{
	for (size_t r = 0; r < rows; r++)
		memcpy(move(tp, y, r * n), bias, n * tp->elem);
}

static void add_bias(const struct kolo_tp *tp, const void *bias, void *y, size_t rows, size_t n)
{
	for (size_t r = 0; r < rows; r++)
		zero_tp_add(tp->config.type, move(tp, y, r * n), bias, n);
}

/* ---- Column-parallel layers ------------------------------------------------------------------ */

int kolo_tp_column_forward(struct kolo_tp *tp, const struct kolo_tp_layer *l, void *x,
			   const void *w, const void *bias, void *y)
{
	int rc = check_layer(tp, l, true);

	if (rc == 0)
		rc = kolo_tp_gather(tp, x, l->rows, l->in);
	if (rc < 0)
		return rc;
	if (bias)
		spread(tp, bias, y, l->rows, l->out);
	multiply_outputs(tp, l, cut(tp, l->out, l->fused), x, w, bias != NULL, y);
	return 0;
}

/* dx [rows, in] = dy w: the sum over outputs, which are divided. */
static int column_inputs(struct kolo_tp *tp, const struct kolo_tp_layer *l, struct pieces p,
			 const void *w, const void *dy, void *dx)
{
	size_t n = l->rows * l->in;
	char *sums;
	int rc = begin_sum(tp, n, dx, &sums);

	if (rc < 0)
		return rc;
	for (size_t i = 0, at = 0; i < p.count; i++, at += p.width)
		multiply(tp, l->rows, l->in, p.width,
			 (struct kolo_tp_matrix){ move(tp, dy, at), l->out, 0 },
			 (struct kolo_tp_matrix){ move(tp, w, at * l->in), l->in, 0 },
			 i >= tp->segments, sums + i % tp->segments * n * tp->elem, l->in);
	return end_sum(tp, sums, dx, l->rows, l->in);
}

int kolo_tp_column_backward(struct kolo_tp *tp, const struct kolo_tp_layer *l, const void *x,
			    const void *w, const void *dy, void *dx, void *dw)
{
	struct pieces p = cut(tp, l->out, l->fused);
	int rc = check_layer(tp, l, true);

	if (rc == 0 && dx)
		rc = column_inputs(tp, l, p, w, dy, dx);
	for (size_t i = 0, at = 0; rc == 0 && dw && i < p.count; i++, at += p.width)
		multiply(tp, p.width, l->in, l->rows,
			 (struct kolo_tp_matrix){ move(tp, dy, at), l->out, 1 },
			 (struct kolo_tp_matrix){ x, l->in, 0 }, false, move(tp, dw, at * l->in),
			 l->in);
	return rc;
}

/* ---- Row-parallel layers --------------------------------------------------------------------- */

int kolo_tp_row_forward(struct kolo_tp *tp, const struct kolo_tp_layer *l, const void *x,
			const void *w, const void *bias, void *y)
{
	struct pieces p = cut(tp, l->in, 1);
	/* Where nothing is added up the product can begin with the bias, which is faster. */
	bool whole = !tp->comm && !tp->config.segments;
	int rc = check_layer(tp, l, false);
	size_t first, own;
	char *sums = NULL;

	if (rc == 0)
		rc = begin_sum(tp, l->rows * l->out, y, &sums);
	if (rc < 0)
		return rc;
	if (bias && whole)
		spread(tp, bias, y, l->rows, l->out);
	for (size_t i = 0, at = 0; i < p.count; i++, at += p.width)
		multiply(tp, l->rows, l->out, p.width,
			 (struct kolo_tp_matrix){ move(tp, x, at), l->in, 0 },
			 (struct kolo_tp_matrix){ move(tp, w, at), l->in, 1 }, bias && whole,
			 sums + i * l->rows * l->out * tp->elem, l->out);
	rc = end_sum(tp, sums, y, l->rows, l->out);
	own = kolo_tp_rows(tp, l->rows, &first);
	if (rc == 0 && bias && !whole)
		add_bias(tp, bias, move(tp, y, first * l->out), own, l->out);
	return rc;
}

int kolo_tp_row_backward(struct kolo_tp *tp, const struct kolo_tp_layer *l, const void *x,
			 const void *w, void *dy, void *dx, void *dw)
{
	struct pieces p = cut(tp, l->in, 1);
	int rc = check_layer(tp, l, false);

	if (rc == 0 && dx)
		rc = kolo_tp_gather(tp, dy, l->rows, l->out);
	for (size_t i = 0, at = 0; rc == 0 && i < p.count; i++, at += p.width) {
		struct kolo_tp_matrix rows = { dy, l->out, 0 }, columns = { dy, l->out, 1 };

		if (dx)
			multiply(tp, l->rows, p.width, l->out, rows,
				 (struct kolo_tp_matrix){ move(tp, w, at), l->in, 0 }, false,
				 move(tp, dx, at), l->in);
		if (dw)
			multiply(tp, l->out, p.width, l->rows, columns,
				 (struct kolo_tp_matrix){ move(tp, x, at), l->in, 0 }, false,
				 move(tp, dw, at), l->in);
	}
	return rc;
}
