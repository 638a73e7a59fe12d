/* Forward and backward of the layers with weights: linear layers and normalization. */
#include "tools/zerotrain/model/inside.h"

static int use_pair(struct model *m, int tensor, const real **first, const real **second)
{
	int rc = m->weights.use(m->weights.arg, tensor, first);

	return rc ? rc : m->weights.use(m->weights.arg, tensor + 1, second);
}

static int release_pair(struct model *m, int tensor)
{
	int rc = m->weights.release(m->weights.arg, tensor);

	return rc ? rc : m->weights.release(m->weights.arg, tensor + 1);
}

static int report_pair(struct model *m, int tensor, const real *first, const real *second)
{
	int rc = m->weights.gradient(m->weights.arg, tensor, first);

	return rc ? rc : m->weights.gradient(m->weights.arg, tensor + 1, second);
}

int linear(struct model *m, int tensor, const real *x, size_t in, real *y, size_t out)
{
	const real *w, *b;
	int rc = use_pair(m, tensor, &w, &b);

	if (rc)
		return rc;
	m->loops->spread(b, y, m->rows, out);
	multiply(m->rows, out, in, 1, (struct matrix){ x, in, false },
		 (struct matrix){ w, in, true }, 1, y, out);
	return release_pair(m, tensor);
}

int linear_back(struct model *m, int tensor, const real *x, size_t in, const real *dy, size_t out,
		real *dx)
{
	const real *w;
	int rc = m->weights.use(m->weights.arg, tensor, &w);

	if (rc)
		return rc;
	multiply(m->rows, in, out, 1, (struct matrix){ dy, out, false },
		 (struct matrix){ w, in, false }, 0, dx, in);
	if ((rc = m->weights.release(m->weights.arg, tensor)))
		return rc;
	multiply(out, in, m->rows, 1, (struct matrix){ dy, out, true },
		 (struct matrix){ x, in, false }, 0, m->dweight, in);
	m->loops->sum_rows(dy, m->dbias, m->rows, out);
	return report_pair(m, tensor, m->dweight, m->dbias);
}

int normalize(struct model *m, int tensor, const real *x, real *y, real *mean, real *rstd)
{
	struct norm norm = { .mean = mean, .rstd = rstd };
	int rc = use_pair(m, tensor, &norm.gain, &norm.bias);

	if (rc)
		return rc;
	m->loops->norm(&norm, x, y, m->rows, (size_t)m->sizes.dim);
	return release_pair(m, tensor);
}

int normalize_back(struct model *m, int tensor, const real *x, real *mean, real *rstd,
		   const real *dy, real *dx)
{
	struct norm norm = { .mean = mean, .rstd = rstd };
	int rc = m->weights.use(m->weights.arg, tensor, &norm.gain);

	if (rc)
		return rc;
	m->loops->norm_back(&norm, x, dy, dx, m->dweight, m->dbias, m->rows, (size_t)m->sizes.dim);
	rc = m->weights.release(m->weights.arg, tensor);
	return rc ? rc : report_pair(m, tensor, m->dweight, m->dbias);
}
