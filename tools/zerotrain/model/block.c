/* Forward and backward of one block: x + project(attend(norm(x))), then x +
 * narrow(bend(widen(norm(x)))), where bend is GELU or SwiGLU. */
#include "tools/zerotrain/math/random.h"
#include "tools/zerotrain/model/inside.h"

#include <string.h>

static int tensor_of(int block, enum block_tensor part)
{
	return FIRST_BLOCK + PER_BLOCK * block + (int)part;
}

/* Of each sequence the rows that are this rank's, run by run of places that follow each other.
 * Elements count from the sequence's first. */
static void drop_sequences(struct model *m, int site, const real *x, real *y)
{
	size_t d = (size_t)m->sizes.dim, t = (size_t)m->now->batch.length, next;
	size_t first = m->now->first, end = first + m->now->own;
	size_t run = m->sizes.context_size > 1 ? t / 2 : t;

	for (size_t r = first; r < end; r = next) {
		size_t b = r / t, at = (r - first) * d;

		next = (r / run + 1) * run < end ? (r / run + 1) * run : end;
		m->loops->drop(x + at, y + at, (next - r) * d, m->sizes.dropout,
			       make_key(m->now->batch.keys[b], (uint64_t)site),
			       part_place(&m->sizes, t, r % t) * d);
	}
}

void drop_rows(struct model *m, int site, const real *x, real *y)
{
	if (m->now->batch.keys && m->sizes.dropout > 0)
		drop_sequences(m, site, x, y);
	else if (x != y)
		memcpy(y, x, m->now->own * (size_t)m->sizes.dim * sizeof(*y));
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

/* out = in + what is beside the stream. */
static void join(struct model *m, int site, const real *in, real *out)
{
	real *own = own_rows(m, m->beside);

	drop_rows(m, site, own, own);
	m->loops->add(in, own, out, m->now->own * (size_t)m->sizes.dim);
}

/* What is between the layers of the MLP. */
static void bend(struct model *m, const struct slot *s)
{
	if (m->sizes.kind == LLAMA)
		m->loops->swiglu(s->wide, s->bent, m->now->rows, m->inner);
	else
		m->loops->gelu(s->wide, s->bent, m->now->rows * m->inner);
}

/* dwide of a slot begins as the derivative of bent. */
static void bend_back(struct model *m, const struct slot *s)
{
	if (m->sizes.kind == LLAMA)
		m->loops->swiglu_back(s->wide, s->dwide, s->dwide, m->now->rows, m->inner);
	else
		m->loops->gelu_back(s->wide, s->dwide, s->dwide, m->now->rows * m->inner);
}

/* Matrices in the layers QKV and WIDEN, of which each rank has the same rows. */
static size_t fused_of(const struct model *m, enum block_tensor part)
{
	if (part == QKV)
		return m->sizes.kind == LLAMA ? 1 : 3;
	return m->sizes.kind == LLAMA ? 2 : 1;
}

/* ULYSSES attends to other columns than those that this rank computes. */
static real *computed_qkv(const struct model *m, const struct slot *s)
{
	return m->sizes.spread == ULYSSES && !m->now->grown ? m->around.qkv : s->qkv;
}

static struct span own_span(const struct model *m)
{
	return (struct span){ &m->own, (size_t)m->now->batch.count, (size_t)m->now->batch.length,
			      m->now->batch.begins };
}

static int mix(struct model *m, int block, const struct slot *s)
{
	if (m->now->grown)
		attend_grown(m, block, s);
	else if (m->sizes.spread == RING)
		return ring_attend(m, s);
	else if (m->sizes.spread == ULYSSES)
		return ulysses_attend(m, s);
	else
		attend(m, own_span(m), s->qkv, s->shares, s->heads);
	return 0;
}

static int mix_back(struct model *m, const struct slot *s)
{
	if (m->sizes.spread == RING)
		return ring_attend_back(m, s, m->dheads, s->dqkv);
	if (m->sizes.spread == ULYSSES)
		return ulysses_attend_back(m, s, m->dheads, s->dqkv);
	attend_back(m, own_span(m), s->qkv, s->shares, m->dheads, s->dqkv);
	return 0;
}

int block_forward(struct model *m, int block, const struct slot *s, real *out)
{
	size_t d = (size_t)m->sizes.dim;
	real *qkv = computed_qkv(m, s);
	int rc;

	if ((rc = normalize(m, tensor_of(block, NORM1), s->in, own_rows(m, s->normed1), s->mean1,
			    s->rstd1)) ||
	    (rc = column(m, tensor_of(block, QKV), s->normed1, d, qkv, m->own.pitch,
			 fused_of(m, QKV))))
		return rc;
	turn_rows(m, qkv, 1);
	if ((rc = mix(m, block, s)) ||
	    (rc = row(m, tensor_of(block, PROJECT), s->heads, m->own.width, m->beside, d)))
		return rc;
	join(m, attention_site(block), s->in, s->mid);
	if ((rc = normalize(m, tensor_of(block, NORM2), s->mid, own_rows(m, s->normed2), s->mean2,
			    s->rstd2)) ||
	    (rc = column(m, tensor_of(block, WIDEN), s->normed2, d, s->wide, m->wide,
			 fused_of(m, WIDEN))))
		return rc;
	bend(m, s);
	if ((rc = row(m, tensor_of(block, NARROW), s->bent, m->inner, m->beside, d)))
		return rc;
	join(m, mlp_site(block), s->mid, out);
	return 0;
}

static int mlp_backward(struct model *m, int block, const struct slot *s)
{
	size_t d = (size_t)m->sizes.dim;
	int rc;

	drop_rows(m, mlp_site(block), m->dstream, own_rows(m, s->dnarrow));
	if ((rc = row_back(m, tensor_of(block, NARROW), s->bent, m->inner, s->dnarrow, d,
			   s->dwide)))
		return rc;
	bend_back(m, s);
	if ((rc = column_back(m, tensor_of(block, WIDEN), s->normed2, d, s->dwide, m->wide,
			      fused_of(m, WIDEN), m->beside)))
		return rc;
	return normalize_back(m, tensor_of(block, NORM2), s->mid, s->mean2, s->rstd2,
			      own_rows(m, m->beside), m->dstream);
}

static int attention_backward(struct model *m, int block, const struct slot *s)
{
	size_t d = (size_t)m->sizes.dim;
	int rc;

	drop_rows(m, attention_site(block), m->dstream, own_rows(m, s->dproject));
	if ((rc = row_back(m, tensor_of(block, PROJECT), s->heads, m->own.width, s->dproject, d,
			   m->dheads)) ||
	    (rc = mix_back(m, s)))
		return rc;
	turn_rows(m, s->dqkv, -1);
	if ((rc = column_back(m, tensor_of(block, QKV), s->normed1, d, s->dqkv, m->own.pitch,
			      fused_of(m, QKV), m->beside)))
		return rc;
	return normalize_back(m, tensor_of(block, NORM1), s->in, s->mean1, s->rstd1,
			      own_rows(m, m->beside), m->dstream);
}

int block_backward(struct model *m, int block, const struct slot *s)
{
	int rc = mlp_backward(m, block, s);

	return rc ? rc : attention_backward(m, block, s);
}

int block_weights(struct model *m, int block, const struct slot *s)
{
	size_t d = (size_t)m->sizes.dim;
	int rc;

	if ((rc = row_weights(m, tensor_of(block, NARROW), s->bent, m->inner, s->dnarrow, d)) ||
	    (rc = column_weights(m, tensor_of(block, WIDEN), s->normed2, d, s->dwide, m->wide,
				 fused_of(m, WIDEN))) ||
	    (rc = row_weights(m, tensor_of(block, PROJECT), s->heads, m->own.width, s->dproject,
			      d)))
		return rc;
	return column_weights(m, tensor_of(block, QKV), s->normed1, d, s->dqkv, m->own.pitch,
			      fused_of(m, QKV));
}
