/* The model's memory: one block, laid out when the model is made. */
#include "tools/zerotrain/model/inside.h"
#include "tools/zerotrain/model/model.h"

#include <stdlib.h>

/* Places are given twice: first only counted, then from the arena. */
static void *take_bytes(struct model *m, size_t len)
{
	char *place = m->arena ? m->arena + m->arena_len : NULL;

	m->arena_len += (len + 63) / 64 * 64; /* lines of a cache */
	return place;
}

static real *take(struct model *m, size_t n)
{
	return take_bytes(m, n * sizeof(real));
}

/* N and O of a full batch. */
static size_t rows_of(const struct model *m)
{
	return (size_t)m->sizes.batch * (size_t)m->sizes.context / m->around.ranks;
}

static size_t own_rows_of(const struct model *m)
{
	size_t first;

	return kolo_tp_rows(m->group, rows_of(m), &first);
}

size_t model_cache(const struct model *m)
{
	size_t blocks = 0;

	for (int p = 0; p < m->nparts; p++)
		blocks += (size_t)(m->parts[p].is.end - m->parts[p].is.first);
	return 2 * blocks * (size_t)m->sizes.texts * whole_pieces(m) * m->own.kv_width *
	       sizeof(real);
}

/* Derivatives: of its own if they are kept, else those that all blocks use. */
static void take_derivatives(struct model *m, struct slot *s, size_t n)
{
	size_t d = (size_t)m->sizes.dim;
	bool kept = m->sizes.halves;

	s->dqkv = kept ? take(m, n * m->own.pitch) : m->dwide;
	s->dproject = kept ? take(m, n * d) : m->beside;
	s->dwide = kept ? take(m, n * m->wide) : m->dwide;
	s->dnarrow = kept ? take(m, n * d) : m->beside;
}

static void take_slot(struct model *m, struct slot *s, bool first)
{
	size_t d = (size_t)m->sizes.dim, n = rows_of(m), own = own_rows_of(m);

	if (!first)
		s->in = take(m, own * d);
	s->mean1 = take(m, own);
	s->rstd1 = take(m, own);
	s->mean2 = take(m, own);
	s->rstd2 = take(m, own);
	s->normed1 = take(m, n * d);
	s->heads = take(m, n * m->own.width);
	s->mid = take(m, own * d);
	s->normed2 = take(m, n * d);
	s->qkv = take(m, n * m->own.pitch);
	if (m->sizes.spread == RING)
		s->sums = take(m, n * m->own.heads);
	else
		s->shares = take(m, n * m->own.heads * (size_t)m->sizes.context);
	s->wide = take(m, n * m->wide);
	s->bent = take(m, n * m->inner);
	take_derivatives(m, s, n);
}

static void take_kept(struct model *m, const struct own_part *p, struct kept *k)
{
	size_t d = (size_t)m->sizes.dim, n = rows_of(m), own = own_rows_of(m);

	for (int i = 0; i < p->segment; i++)
		take_slot(m, &k->slots[i], i == 0);
	/* Of a part in the middle the first input and the last output are the caller's. */
	for (int i = p->is.first > 0; i < p->nsegments; i++)
		k->inputs[i] = take(m, own * d);
	if (p->is.end < m->sizes.layers)
		return;
	k->last = take(m, own * d);
	k->mean = take(m, own);
	k->rstd = take(m, own);
	k->normed = take(m, n * d);
	k->logits = take(m, n * m->values);
}

/* What a call of model_extend needs. Its blocks share one slot, and their inputs take turns: a
 * segment's first one has a place, the others two more. */
static void share_slot(const struct own_part *p, struct kept *k, real *const in[3])
{
	struct slot all = k->slots[0];

	for (int i = 0; i < p->segment; i++) {
		k->slots[i] = all;
		k->slots[i].in = in[1 + i % 2];
	}
	for (int i = 0; i < p->nsegments; i++)
		k->inputs[i] = in[0];
}

static void take_slot_grown(struct model *m, struct slot *s, size_t own)
{
	size_t d = (size_t)m->sizes.dim, n = m->grown_rows;

	*s = (struct slot){ 0 };
	s->mean1 = s->mean2 = take(m, own);
	s->rstd1 = s->rstd2 = take(m, own);
	s->normed1 = s->normed2 = take(m, n * d);
	s->heads = take(m, n * m->own.width);
	s->mid = take(m, own * d);
	s->qkv = take(m, n * m->own.pitch);
	s->shares = take(m, PIECE * whole_pieces(m));
	s->wide = take(m, n * m->wide);
	s->bent = take(m, n * m->inner);
}

static void take_head_grown(struct model *m, struct kept *k, size_t own)
{
	k->last = take(m, own * (size_t)m->sizes.dim);
	k->mean = take(m, own);
	k->rstd = take(m, own);
	k->normed = take(m, m->grown_rows * (size_t)m->sizes.dim);
	k->logits = take(m, m->grown_rows * m->values);
}

static void take_growing(struct model *m)
{
	size_t own, first, texts = (size_t)m->sizes.texts, n = m->grown_rows;
	real *in[3];
	struct slot slot;

	own = kolo_tp_rows(m->group, n, &first);
	m->grown.row_of = take_bytes(m, texts * sizeof(*m->grown.row_of));
	m->grown.ids = take_bytes(m, n * sizeof(*m->grown.ids));
	m->grown.places = take_bytes(m, n * sizeof(*m->grown.places));
	m->keys = take(m, model_cache(m) / 2 / sizeof(real));
	m->values_kept = take(m, model_cache(m) / 2 / sizeof(real));
	for (int i = 0; i < 3; i++)
		in[i] = take(m, own * (size_t)m->sizes.dim);
	take_slot_grown(m, &slot, own);
	for (int p = 0; p < m->nparts; p++) {
		struct kept *k = &m->parts[p].kept[m->parts[p].is.buffers];

		k->slots[0] = slot;
		share_slot(&m->parts[p], k, in);
		if (m->parts[p].is.end == m->sizes.layers)
			take_head_grown(m, k, own);
	}
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* What backward needs besides what is kept. */
static void take_backward(struct model *m)
{
	size_t d = (size_t)m->sizes.dim, t = (size_t)m->sizes.context, n = rows_of(m);
	size_t rows = larger(m->wide, larger(m->own.pitch, larger(m->inner, m->own.width)));

	m->dwide = take(m, n * larger(m->wide, m->own.pitch + m->own.width));
	m->dheads = m->dwide ? m->dwide + n * m->own.pitch : NULL;
	m->dshares = take(m, QUERIES * t);
	if (m->sizes.spread == RING)
		m->scores = take(m, QUERIES * t);
	m->dweight = take(m, d * rows);
	m->dbias = take(m, larger(rows, d));
	m->dbytes = take(m, m->values * d);
	if (m->sizes.kind == GPT2)
		m->dplaces = take(m, kolo_tp_row_segments(m->group) * t * d);
	m->dnorm = take(m, kolo_tp_row_segments(m->group) * 2 * d);
}

/* What goes round a context group. */
static void take_around(struct model *m)
{
	struct around *a = &m->around;
	size_t n = rows_of(m), e = 2 * n * m->own.kv_width;

	if (m->sizes.spread == RING) {
		a->most = take(m, n * m->own.heads);
		a->own = take(m, e);
		for (int i = 0; i < 2; i++) {
			a->kv[i] = take(m, e);
			a->dkv[i] = take(m, e);
		}
	} else if (m->sizes.spread == ULYSSES) {
		a->qkv = take(m, n * m->own.pitch);
		a->out = take(m, n * m->own.pitch);
		a->in = take(m, n * m->own.pitch);
	}
}

static void take_all(struct model *m)
{
	size_t d = (size_t)m->sizes.dim, n = rows_of(m);
	size_t most = larger(n, m->grown_rows);

	m->arena_len = 0;
	m->ids = take_bytes(m, n * sizeof(*m->ids));
	m->dstream = take(m, own_rows_of(m) * d);
	m->beside = take(m, most * d);
	take_backward(m);
	take_around(m);
	if (m->sizes.kind == LLAMA)
		m->turns = take(m, (size_t)m->sizes.context * m->own.head);
	for (int p = 0; p < m->nparts; p++)
		for (int i = 0; i < m->parts[p].is.buffers; i++)
			take_kept(m, &m->parts[p], &m->parts[p].kept[i]);
	if (m->sizes.texts)
		take_growing(m);
}

static bool take_lists(struct model *m, struct own_part *p)
{
	int blocks = p->is.end - p->is.first, all = p->is.buffers + (m->sizes.texts > 0);

	p->segment = m->sizes.segment < blocks ? m->sizes.segment : blocks;
	p->nsegments = (blocks + p->segment - 1) / p->segment;
	p->kept = calloc((size_t)all, sizeof(*p->kept));
	for (int i = 0; p->kept && i < all; i++) {
		struct kept *k = &p->kept[i];

		k->slots = calloc((size_t)p->segment, sizeof(*k->slots));
		k->inputs = calloc((size_t)p->nsegments, sizeof(*k->inputs));
		if (!k->slots || !k->inputs)
			return false;
	}
	return p->kept != NULL;
}

bool plan_memory(struct model *m)
{
	size_t size = m->sizes.tensor_size > 1 ? (size_t)m->sizes.tensor_size : 1;

	/* Each rank of the group has equally many. */
	m->grown_rows = ((size_t)m->sizes.texts * PIECE + size - 1) / size * size;
	for (int p = 0; p < m->nparts; p++)
		if (!take_lists(m, &m->parts[p]))
			return false;
	take_all(m);
	m->arena = m->room.take(m->room.arg, m->arena_len);
	if (m->arena) {
		take_all(m);
		fill_turns(m);
	}
	return m->arena != NULL;
}
