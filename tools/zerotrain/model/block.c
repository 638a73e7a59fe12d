/* Forward and backward of one block: x + project(attend(norm(x))), then x +
 * narrow(GELU(widen(norm(x)))). */
#include "tools/zerotrain/model/inside.h"
#include "tools/zerotrain/model/random.h"

#include <string.h>

static int tensor_of(int block, enum block_tensor part)
{
	return FIRST_BLOCK + PER_BLOCK * block + (int)part;
}

void drop_rows(struct model *m, int site, const real *x, real *y)
{
	size_t n = (size_t)m->batch.length * (size_t)m->sizes.dim;

	if (m->batch.keys && m->sizes.dropout > 0)
		for (int b = 0; b < m->batch.count; b++, x += n, y += n)
			m->loops->drop(x, y, n, m->sizes.dropout,
				       make_key(m->batch.keys[b], (uint64_t)site));
	else if (x != y)
		memcpy(y, x, m->rows * (size_t)m->sizes.dim * sizeof(*y));
}

/* Site 0 is the embedding's. */
static int attention_site(int block)
{
	return 1 + 2 * block;
}

static int mlp_site(int block)
{
	return 2 + 2 * block;
}

int block_forward(struct model *m, int block, const struct slot *s, real *out)
{
	size_t d = (size_t)m->sizes.dim, n = m->rows * d;
	int rc;

	if ((rc = normalize(m, tensor_of(block, NORM1), s->in, s->normed1, s->mean1, s->rstd1)) ||
	    (rc = linear(m, tensor_of(block, QKV), s->normed1, d, s->qkv, 3 * d)))
		return rc;
	attend(m, s);
	if ((rc = linear(m, tensor_of(block, PROJECT), s->heads, d, s->mid, d)))
		return rc;
	drop_rows(m, attention_site(block), s->mid, s->mid);
	m->loops->add(s->in, s->mid, s->mid, n);
	if ((rc = normalize(m, tensor_of(block, NORM2), s->mid, s->normed2, s->mean2, s->rstd2)) ||
	    (rc = linear(m, tensor_of(block, WIDEN), s->normed2, d, s->wide, 4 * d)))
		return rc;
	m->loops->gelu(s->wide, s->bent, 4 * n);
	if ((rc = linear(m, tensor_of(block, NARROW), s->bent, 4 * d, out, d)))
		return rc;
	drop_rows(m, mlp_site(block), out, out);
	m->loops->add(s->mid, out, out, n);
	return 0;
}

static int mlp_backward(struct model *m, int block, const struct slot *s)
{
	size_t d = (size_t)m->sizes.dim;
	int rc;

	drop_rows(m, mlp_site(block), m->dstream, m->dnarrow);
	if ((rc = linear_back(m, tensor_of(block, NARROW), s->bent, 4 * d, m->dnarrow, d,
			      m->dwide)))
		return rc;
	m->loops->gelu_back(s->wide, m->dwide, m->dwide, m->rows * 4 * d);
	if ((rc = linear_back(m, tensor_of(block, WIDEN), s->normed2, d, m->dwide, 4 * d,
			      m->dnarrow)))
		return rc;
	return normalize_back(m, tensor_of(block, NORM2), s->mid, s->mean2, s->rstd2, m->dnarrow,
			      m->dstream);
}

static int attention_backward(struct model *m, int block, const struct slot *s)
{
	size_t d = (size_t)m->sizes.dim;
	real *dqkv = m->dwide, *dheads = m->dwide + m->rows * 3 * d; /* [N, 3 D] and [N, D] */
	int rc;

	drop_rows(m, attention_site(block), m->dstream, m->dnarrow);
	if ((rc = linear_back(m, tensor_of(block, PROJECT), s->heads, d, m->dnarrow, d, dheads)))
		return rc;
	attend_back(m, s, dheads, dqkv);
	if ((rc = linear_back(m, tensor_of(block, QKV), s->normed1, d, dqkv, 3 * d, m->dnarrow)))
		return rc;
	return normalize_back(m, tensor_of(block, NORM1), s->in, s->mean1, s->rstd1, m->dnarrow,
			      m->dstream);
}

int block_backward(struct model *m, int block, const struct slot *s)
{
	int rc = mlp_backward(m, block, s);

	return rc ? rc : attention_backward(m, block, s);
}
