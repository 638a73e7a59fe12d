/* Forward and backward of the layers with weights: linear layers, the head and normalization. */
#include "tools/zerotrain/model/inside.h"

/* ---- Weights --------------------------------------------------------------------------------- */

static int use(struct model *m, int tensor, const real **out)
{
	return m->weights.use(m->weights.arg, tensor, out);
}

static int release(struct model *m, int tensor, int rc)
{
	int released = m->weights.release(m->weights.arg, tensor);

	return rc ? rc : released;
}

/* A matrix or a gain and the bias after it, or NULL if the model has none. */
static int use_pair(struct model *m, int tensor, const real **first, const real **second)
{
	int rc = use(m, tensor, first);

	*second = NULL;
	return rc || !tensor_is_there(&m->sizes, tensor + 1) ? rc : use(m, tensor + 1, second);
}

static int release_pair(struct model *m, int tensor, int rc)
{
	rc = release(m, tensor, rc);
	return tensor_is_there(&m->sizes, tensor + 1) ? release(m, tensor + 1, rc) : rc;
}

static int report_pair(struct model *m, int tensor, const real *first, const real *second)
{
	int rc = m->weights.gradient(m->weights.arg, tensor, first);

	return rc || !tensor_is_there(&m->sizes, tensor + 1)
		       ? rc
		       : m->weights.gradient(m->weights.arg, tensor + 1, second);
}

/* ---- Linear layers --------------------------------------------------------------------------- */

int column(struct model *m, int tensor, real *x, size_t in, real *y, size_t out, size_t fused)
{
	struct kolo_tp_layer layer = { m->now->rows, in, out, fused, { 0 } };
	const real *w, *b;
	int rc = use_pair(m, tensor, &w, &b);

	if (rc)
		return rc;
	return release_pair(m, tensor, kolo_tp_column_forward(m->group, &layer, x, w, b, y));
}

int row(struct model *m, int tensor, const real *x, size_t in, real *y, size_t out)
{
	struct kolo_tp_layer layer = { m->now->rows, in, out, 0, { 0 } };
	const real *w, *b;
	int rc = use_pair(m, tensor, &w, &b);

	if (rc)
		return rc;
	return release_pair(m, tensor, kolo_tp_row_forward(m->group, &layer, x, w, b, y));
}

/* dw is in dweight already. */
static int report_linear(struct model *m, int tensor, const real *dy, size_t out)
{
	if (tensor_is_there(&m->sizes, tensor + 1))
		m->loops->sum_rows(dy, m->dbias, m->now->rows, out);
	return report_pair(m, tensor, m->dweight, m->dbias);
}

/* Where backward puts gradients of weights. */
static real *dweight_now(const struct model *m)
{
	return m->sizes.halves ? NULL : m->dweight;
}

int column_back(struct model *m, int tensor, const real *x, size_t in, const real *dy, size_t out,
		size_t fused, real *dx)
{
	struct kolo_tp_layer layer = { m->now->rows, in, out, fused, { 0 } };
	const real *w;
	int rc = use(m, tensor, &w);

	if (rc)
		return rc;
	rc = release(m, tensor,
		     kolo_tp_column_backward(m->group, &layer, x, w, dy, dx, dweight_now(m)));
	return rc || m->sizes.halves ? rc : report_linear(m, tensor, dy, out);
}

int column_weights(struct model *m, int tensor, const real *x, size_t in, const real *dy,
		   size_t out, size_t fused)
{
	struct kolo_tp_layer layer = { m->now->rows, in, out, fused, { 0 } };
	int rc = kolo_tp_column_backward(m->group, &layer, x, NULL, dy, NULL, m->dweight);

	return rc ? rc : report_linear(m, tensor, dy, out);
}

int row_back(struct model *m, int tensor, const real *x, size_t in, real *dy, size_t out, real *dx)
{
	struct kolo_tp_layer layer = { m->now->rows, in, out, 0, { 0 } };
	const real *w;
	int rc = use(m, tensor, &w);

	if (rc)
		return rc;
	rc = release(m, tensor,
		     kolo_tp_row_backward(m->group, &layer, x, w, dy, dx, dweight_now(m)));
	return rc || m->sizes.halves ? rc : report_linear(m, tensor, dy, out);
}

int row_weights(struct model *m, int tensor, const real *x, size_t in, real *dy, size_t out)
{
	struct kolo_tp_layer layer = { m->now->rows, in, out, 0, { 0 } };
	int rc = kolo_tp_row_backward(m->group, &layer, x, NULL, dy, NULL, m->dweight);

	return rc ? rc : report_linear(m, tensor, dy, out);
}

/* ---- The head -------------------------------------------------------------------------------- */

int unembed(struct model *m, real *x, real *logits)
{
	struct kolo_tp_layer layer = { m->now->rows, (size_t)m->sizes.dim, m->values, 0, { 0 } };
	int tensor = head_tensor(&m->sizes), rc;
	const real *w;

	if ((rc = use(m, tensor, &w)))
		return rc;
	return release(m, tensor, kolo_tp_column_forward(m->group, &layer, x, w, NULL, logits));
}

int unembed_back(struct model *m, enum half half, const real *x, const real *dlogits, real *dx)
{
	struct kolo_tp_layer layer = { m->now->rows, (size_t)m->sizes.dim, m->values, 0, { 0 } };
	int tensor = head_tensor(&m->sizes), rc;
	const real *w;

	if (half == WEIGHTS)
		return kolo_tp_column_backward(m->group, &layer, x, NULL, dlogits, NULL, m->dbytes);
	if ((rc = use(m, tensor, &w)))
		return rc;
	return release(m, tensor,
		       kolo_tp_column_backward(m->group, &layer, x, w, dlogits, dx,
					       half == BOTH ? m->dbytes : NULL));
}

/* ---- Normalization --------------------------------------------------------------------------- */

int normalize(struct model *m, int tensor, const real *x, real *y, real *mean, real *rstd)
{
	struct norm norm = { .mean = mean, .rstd = rstd, .eps = m->eps };
	int rc = use_pair(m, tensor, &norm.gain, &norm.bias);

	if (rc)
		return rc;
	m->loops->norm(&norm, x, y, m->now->own, (size_t)m->sizes.dim);
	return release_pair(m, tensor, 0);
}

/* Gradients of gain and bias are sums over rows, one for each segment of them. */
static void norm_back(struct model *m, const struct norm *norm, const real *x, const real *dy,
		      real *dx)
{
	size_t d = (size_t)m->sizes.dim, n = kolo_tp_row_segments(m->group), own = m->now->own;

	for (size_t s = 0; s < n; s++) {
		size_t first = s * own / n, rows = (s + 1) * own / n - first;
		struct norm part = { norm->gain, norm->bias, norm->mean + first, norm->rstd + first,
				     m->eps };
		real *dgain = m->dnorm + s * (norm->bias ? 2 : 1) * d;

		m->loops->norm_back(&part, x + first * d, dy + first * d, dx + first * d, dgain,
				    dgain + d, rows, d);
	}
}

int normalize_back(struct model *m, int tensor, const real *x, real *mean, real *rstd,
		   const real *dy, real *dx)
{
	struct norm norm = { .mean = mean, .rstd = rstd, .eps = m->eps };
	size_t d = (size_t)m->sizes.dim;
	int rc = use_pair(m, tensor, &norm.gain, &norm.bias);

	if (rc)
		return rc;
	norm_back(m, &norm, x, dy, dx);
	if ((rc = release_pair(m, tensor, 0)) ||
	    (rc = kolo_tp_sum(m->group, m->dnorm, (norm.bias ? 2 : 1) * d)))
		return rc;
	return report_pair(m, tensor, m->dnorm, m->dnorm + d);
}
