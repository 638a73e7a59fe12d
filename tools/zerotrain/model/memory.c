/* The model's memory: one block, laid out when the model is made. */
#include "tools/zerotrain/model/inside.h"

#include <stdlib.h>

/* Places are given twice: first only counted, then from the arena. */
static real *take(struct model *m, size_t n)
{
	real *place = m->arena ? (real *)(m->arena + m->arena_len) : NULL;

	m->arena_len += (n * sizeof(real) + 63) / 64 * 64; /* lines of a cache */
	return place;
}

static void take_slot(struct model *m, struct slot *s, size_t n, bool first)
{
	size_t d = (size_t)m->sizes.dim, t = (size_t)m->sizes.context, h = (size_t)m->sizes.heads;

	if (!first)
		s->in = take(m, n * d);
	s->mean1 = take(m, n);
	s->rstd1 = take(m, n);
	s->mean2 = take(m, n);
	s->rstd2 = take(m, n);
	s->normed1 = take(m, n * d);
	s->heads = take(m, n * d);
	s->mid = take(m, n * d);
	s->normed2 = take(m, n * d);
	s->qkv = take(m, n * 3 * d);
	s->shares = take(m, n * h * t);
	s->wide = take(m, n * 4 * d);
	s->bent = take(m, n * 4 * d);
}

static void take_all(struct model *m)
{
	size_t d = (size_t)m->sizes.dim, t = (size_t)m->sizes.context,
	       n = (size_t)m->sizes.batch * t;

	m->arena_len = 0;
	for (int i = 0; i < m->sizes.segment; i++)
		take_slot(m, &m->slots[i], n, i == 0);
	for (int i = 0; i < m->nsegments; i++)
		m->inputs[i] = take(m, n * d);
	m->last = take(m, n * d);
	m->mean = take(m, n);
	m->rstd = take(m, n);
	m->normed = take(m, n * d);
	m->logits = take(m, n * VALUES);
	m->dstream = take(m, n * d);
	m->dnarrow = take(m, n * d);
	m->dwide = take(m, n * 4 * d);
	m->dshares = take(m, QUERIES * t);
	m->dweight = take(m, 4 * d * d);
	m->dbias = take(m, 4 * d);
	m->dbytes = take(m, VALUES * d);
	m->dplaces = take(m, t * d);
}

bool plan_memory(struct model *m)
{
	m->nsegments = (m->sizes.layers + m->sizes.segment - 1) / m->sizes.segment;
	m->slots = calloc((size_t)m->sizes.segment, sizeof(*m->slots));
	m->inputs = calloc((size_t)m->nsegments, sizeof(*m->inputs));
	if (!m->slots || !m->inputs)
		return false;
	take_all(m);
	m->arena = m->room.take(m->room.arg, m->arena_len);
	if (m->arena)
		take_all(m);
	return m->arena != NULL;
}
