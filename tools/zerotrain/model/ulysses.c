/* Attention after an exchange (as DeepSpeed's Ulysses has it): each of R ranks has all heads of a
 * part of each sequence, and gets all places of H / R heads, by all_to_all; and back afterwards. So
 * attention itself is that of one rank. It sends (R - 1) / R of what it exchanges: for each layer
 * queries, keys, values and heads of N rows, N (Q + D / G) elements, forward and backward. */
#include "tools/zerotrain/model/inside.h"

#include <string.h>

/* Rows of queries, keys and values beside each other in a row of qkv, of which each rank gets the
 * same share (struct kolo_tp_layer). */
static size_t fused_of(const struct model *m)
{
	return m->sizes.kind == GPT2 ? 3 : 1;
}

static int exchange(struct model *m, size_t columns)
{
	struct around *a = &m->around;
	size_t n = m->now->rows * columns / a->ranks;

	a->counts.sent_bytes += (a->ranks - 1) * n * sizeof(real);
	return kolo_all_to_all(a->comm, a->out, a->in, n, real_type(), NULL);
}

enum direction { TO_PARTS, FROM_PARTS };

static void copy(real *x, real *part, size_t n, enum direction way)
{
	memcpy(way == TO_PARTS ? part : x, way == TO_PARTS ? x : part, n * sizeof(*x));
}

/* x [N, columns], all heads of this rank's places, and parts [R, N, columns / R], their heads rank
 * by rank. */
static void move_heads(const struct model *m, real *x, size_t columns, size_t fused, real *parts,
		       enum direction way)
{
	size_t ranks = m->around.ranks, n = columns / fused / ranks;

	for (size_t r = 0; r < ranks; r++)
		for (size_t row = 0; row < m->now->rows; row++)
			for (size_t f = 0; f < fused; f++, parts += n)
				copy(x + row * columns + (f * ranks + r) * n, parts, n, way);
}

/* x [B, T R, columns], some heads of all places, and parts [R, B, T, columns], their places rank by
 * rank. A rank's places are two chunks. */
static void move_places(const struct model *m, real *x, size_t columns, real *parts,
			enum direction way)
{
	size_t ranks = m->around.ranks, half = (size_t)m->now->batch.length / 2;
	size_t all = 2 * half * ranks, n = half * columns;

	for (size_t r = 0; r < ranks; r++)
		for (size_t b = 0; b < (size_t)m->now->batch.count; b++, parts += 2 * n) {
			real *of_text = x + b * all * columns;

			copy(of_text + r * n, parts, n, way);
			copy(of_text + (2 * ranks - 1 - r) * n, parts + n, n, way);
		}
}

static struct span span_of(const struct model *m)
{
	return (struct span){ &m->around.some, (size_t)m->now->batch.count,
			      (size_t)m->now->batch.length * m->around.ranks, NULL };
}

int ulysses_attend(struct model *m, const struct slot *s)
{
	struct around *a = &m->around;
	int rc;

	move_heads(m, a->qkv, m->own.pitch, fused_of(m), a->out, TO_PARTS);
	if ((rc = exchange(m, m->own.pitch)))
		return rc;
	move_places(m, s->qkv, a->some.pitch, a->in, FROM_PARTS);
	attend(m, span_of(m), s->qkv, s->shares, a->qkv);
	move_places(m, a->qkv, a->some.width, a->out, TO_PARTS);
	if ((rc = exchange(m, m->own.width)))
		return rc;
	move_heads(m, s->heads, m->own.width, 1, a->in, FROM_PARTS);
	return 0;
}

int ulysses_attend_back(struct model *m, const struct slot *s, const real *dheads, real *dqkv)
{
	struct around *a = &m->around;
	int rc;

	move_heads(m, (real *)dheads, m->own.width, 1, a->out, TO_PARTS); /* which only reads */
	if ((rc = exchange(m, m->own.width)))
		return rc;
	move_places(m, a->qkv, a->some.width, a->in, FROM_PARTS);
	attend_back(m, span_of(m), s->qkv, s->shares, a->qkv, a->in);
	move_places(m, a->in, a->some.pitch, a->out, TO_PARTS);
	if ((rc = exchange(m, m->own.pitch)))
		return rc;
	move_heads(m, dqkv, m->own.pitch, fused_of(m), a->in, FROM_PARTS);
	return 0;
}
