/* Ring attention: each rank has a part of each sequence, and keys and values go round. In each of R
 * steps a rank attends to those that are here, while it passes them on and the next ones come. In
 * backward they go round again, and what each rank adds to their derivatives goes with them, one
 * step more, until it is home.
 *
 * Sequences are cut into 2 R chunks, of which rank r has numbers r and 2 R - 1 - r. So, although no
 * place sees later ones, all ranks compute the same in each step: two pairs of chunks. In the first
 * step, with the rank's own chunks, there are three, of which two see half.
 *
 * It sends, for each layer: forward (R - 1) e, backward (2 R - 1) e, with e the keys and values of
 * N rows: 2 N K D / H / G elements. */
#include "tools/zerotrain/model/inside.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* ---- Messages -------------------------------------------------------------------------------- */

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* e */
static size_t elements_of(const struct model *m)
{
	return 2 * m->now->rows * m->own.kv_width;
}

/* Gives `from` to the next rank, and takes what the one before it has, on the queue. */
static int pass(struct model *m, const real *from, real *to)
{
	struct around *a = &m->around;
	size_t n = elements_of(m);
	int next = (int)((a->rank + 1) % a->ranks),
	    prev = (int)((a->rank + a->ranks - 1) % a->ranks), rc, ended;

	a->counts.sent_bytes += n * sizeof(real);
	if ((rc = kolo_group_begin()))
		return rc;
	if ((rc = kolo_send(a->comm, from, n, real_type(), next, a->queue)) == 0)
		rc = kolo_recv(a->comm, to, n, real_type(), prev, a->queue);
	ended = kolo_group_end();
	return rc ? rc : ended;
}

static int wait(struct model *m)
{
	double began = now_us();
	int rc = m->around.ranks > 1 ? kolo_queue_wait(m->around.queue) : 0;

	m->around.counts.waited_us += now_us() - began;
	return rc;
}

/* Starts a message. With sizes.serial it ends at once. */
static int start(struct model *m, const real *from, real *to)
{
	int rc = pass(m, from, to);

	return rc || !m->sizes.serial ? rc : wait(m);
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

/* The number of one of the two chunks that a rank has. */
static size_t chunk_of(const struct model *m, size_t rank, size_t half)
{
	return half ? 2 * m->around.ranks - 1 - rank : rank;
}

/* Which keys and values are here in a step: those of this rank. */
static size_t owner_of(const struct model *m, size_t step)
{
	return (m->around.rank + m->around.ranks - step) % m->around.ranks;
}

/* kv [2, N, kv_width] of this rank: keys, then values. */
static void take_out(const struct model *m, const real *qkv, real *kv)
{
	size_t w = m->own.head, width = m->own.kv_width, each = m->own.heads / m->own.kv_heads;

	for (size_t r = 0; r < m->now->rows; r++, qkv += m->own.pitch)
		for (size_t h = 0; h < m->own.kv_heads; h++) {
			struct columns from = columns_of(&m->own, h * each);
			real *k = kv + r * width + h * w, *v = k + m->now->rows * width;

			memcpy(k, qkv + from.k, w * sizeof(*k));
			memcpy(v, qkv + from.v, w * sizeof(*v));
		}
}

/* The way back, of derivatives. */
static void put_back(const struct model *m, const real *dkv, real *dqkv)
{
	size_t w = m->own.head, width = m->own.kv_width, each = m->own.heads / m->own.kv_heads;

	for (size_t r = 0; r < m->now->rows; r++, dqkv += m->own.pitch)
		for (size_t h = 0; h < m->own.kv_heads; h++) {
			struct columns to = columns_of(&m->own, h * each);
			const real *dk = dkv + r * width + h * w, *dv = dk + m->now->rows * width;

			memcpy(dqkv + to.k, dk, w * sizeof(*dk));
			memcpy(dqkv + to.v, dv, w * sizeof(*dv));
		}
}

/* A head's queries and the keys of its group: which rows and columns. */
struct where {
	size_t row, keys_row; /* the first rows of both chunks */
	size_t head, kv;      /* the first columns of heads and kv */
	size_t q, sums;       /* the column of queries; where sums of the first row are */
	size_t n;
	bool same;
};

typedef void do_pair_fn(struct model *m, const struct where *w, void *arg);

/* The pairs of chunks of a step in which queries see keys, for each sequence and head. */
static void for_pairs(struct model *m, size_t owner, do_pair_fn *act, void *arg)
{
	size_t length = (size_t)m->now->batch.length, half = length / 2;
	size_t count = (size_t)m->now->batch.count, each = m->own.heads / m->own.kv_heads;

	for (size_t i = 0; i < count * m->own.heads * 4; i++) {
		size_t b = i / (4 * m->own.heads), h = i / 4 % m->own.heads;
		size_t mine = i / 2 % 2, theirs = i % 2;
		size_t chunk = chunk_of(m, m->around.rank, mine), keys = chunk_of(m, owner, theirs);
		struct where w = {
			.row = b * length + mine * half,
			.keys_row = b * length + theirs * half,
			.head = h * m->own.head,
			.kv = h / each * m->own.head,
			.q = columns_of(&m->own, h).q,
			.sums = (b * m->own.heads + h) * length + mine * half,
			.n = half,
			.same = chunk == keys,
		};

		if (chunk >= keys)
			act(m, &w, arg);
	}
}

/* ---- Forward --------------------------------------------------------------------------------- */

struct attending {
	const struct slot *slot;
	const real *kv, *dheads; /* dheads: backward */
	real *dqkv, *dkv;
};

static struct pair pair_of(const struct model *m, const struct attending *a, const struct where *w)
{
	const real *k = a->kv + w->keys_row * m->own.kv_width + w->kv;

	return (struct pair){
		.n = w->n,
		.head = m->own.head,
		.same = w->same,
		.q = a->slot->qkv + w->row * m->own.pitch + w->q,
		.pitch = m->own.pitch,
		.k = k,
		.v = k + m->now->rows * m->own.kv_width,
		.kv_width = m->own.kv_width,
		.heads = a->slot->heads + w->row * m->own.width + w->head,
		.width = m->own.width,
		.most = m->around.most + w->sums,
		.sums = a->slot->sums + w->sums,
		.factor = m->own.factor,
	};
}

static void attend_pair(struct model *m, const struct where *w, void *arg)
{
	struct pair p = pair_of(m, arg, w);

	pair_forward(m, &p);
}

/* The pairs of a rank with itself have all queries. */
static void finish_pair(struct model *m, const struct where *w, void *arg)
{
	struct pair p = pair_of(m, arg, w);

	if (w->same)
		pair_finish(&p);
}

int ring_attend(struct model *m, const struct slot *s)
{
	struct around *a = &m->around;
	size_t rows = m->now->rows, sums = rows * m->own.heads;
	struct attending now = { .slot = s };
	int rc = 0;

	memset(s->heads, 0, rows * m->own.width * sizeof(*s->heads));
	memset(s->sums, 0, sums * sizeof(*s->sums));
	for (size_t i = 0; i < sums; i++)
		a->most[i] = -INFINITY;
	take_out(m, s->qkv, a->kv[0]);
	for (size_t step = 0; rc == 0 && step < a->ranks; step++) {
		now.kv = a->kv[step % 2];
		if (step + 1 < a->ranks)
			rc = start(m, now.kv, a->kv[1 - step % 2]);
		if (rc == 0)
			for_pairs(m, owner_of(m, step), attend_pair, &now);
		if (rc == 0)
			rc = wait(m);
	}
	if (rc == 0)
		for_pairs(m, a->rank, finish_pair, &now);
	return rc;
}

/* ---- Backward -------------------------------------------------------------------------------- */

static void attend_pair_back(struct model *m, const struct where *w, void *arg)
{
	const struct attending *a = arg;
	struct pair p = pair_of(m, a, w);
	real *dk = a->dkv + w->keys_row * m->own.kv_width + w->kv;
	struct pair_back back = {
		.dheads = a->dheads + w->row * m->own.width + w->head,
		.dq = a->dqkv + w->row * m->own.pitch + w->q,
		.dk = dk,
		.dv = dk + m->now->rows * m->own.kv_width,
	};

	pair_backward(m, &p, &back);
}

/* most becomes the sum of dheads heads of each query, which all its shares have in common. */
static void find_common(struct model *m, const struct where *w, void *arg)
{
	const struct attending *a = arg;
	size_t at = w->row * m->own.width + w->head;

	for (size_t i = 0; w->same && i < w->n; i++, at += m->own.width)
		m->around.most[w->sums + i] =
			m->loops->dot(a->dheads + at, a->slot->heads + at, m->own.head);
}

/* What this rank adds to the derivatives of the keys and values that are here, and, from the second
 * step on, what those before it added: these came to dkv[1 - step % 2]. */
static int add_up(struct model *m, size_t step)
{
	struct around *a = &m->around;
	real *came = a->dkv[1 - step % 2];

	if (step == 0)
		memcpy(came, a->own, elements_of(m) * sizeof(*came));
	else
		m->loops->add(came, a->own, came, elements_of(m));
	return a->ranks > 1 ? start(m, came, a->dkv[step % 2]) : 0;
}

int ring_attend_back(struct model *m, const struct slot *s, const real *dheads, real *dqkv)
{
	struct around *a = &m->around;
	struct attending now = { .slot = s, .dheads = dheads, .dqkv = dqkv, .dkv = a->own };
	int rc = 0;

	memset(dqkv, 0, m->now->rows * m->own.pitch * sizeof(*dqkv));
	for_pairs(m, a->rank, find_common, &now);
	take_out(m, s->qkv, a->kv[0]);
	for (size_t step = 0; rc == 0 && step < a->ranks; step++) {
		now.kv = a->kv[step % 2];
		if (step + 1 < a->ranks)
			rc = start(m, now.kv, a->kv[1 - step % 2]);
		memset(a->own, 0, elements_of(m) * sizeof(*a->own));
		if (rc == 0)
			for_pairs(m, owner_of(m, step), attend_pair_back, &now);
		if (rc == 0 && (rc = wait(m)) == 0)
			rc = add_up(m, step);
	}
	if (rc == 0 && (rc = wait(m)) == 0)
		put_back(m, a->dkv[a->ranks > 1 ? (a->ranks - 1) % 2 : 1], dqkv);
	return rc;
}
