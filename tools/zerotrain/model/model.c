/* The whole model: embedding, blocks in segments, head and loss.
 *
 * A segment has sizes.segment blocks, and there are slots for one segment. Forward keeps the input
 * of each segment. When backward begins, the last segment's activations are still there. It
 * computes those of the other segments again, with the same bits. One segment of all blocks
 * computes nothing twice. */
#include "tools/zerotrain/model/model.h"
#include "tools/zerotrain/model/inside.h"

#include <stdlib.h>
#include <string.h>

static void *take_of_host(void *arg, size_t bytes)
{
	(void)arg;
	return aligned_alloc(64, bytes);
}

static void give_to_host(void *arg, void *memory, size_t bytes)
{
	(void)arg;
	(void)bytes;
	free(memory);
}

struct model *model_create(const struct sizes *sizes, const struct weights *weights,
			   const struct room *room)
{
	static const struct room host = { take_of_host, give_to_host, NULL };
	struct model *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->sizes = *sizes;
	m->weights = *weights;
	m->room = room ? *room : host;
	m->loops = best_loops();
	use_one_thread();
	if (!plan_memory(m)) {
		model_destroy(m);
		return NULL;
	}
	return m;
}

void model_destroy(struct model *m)
{
	if (!m)
		return;
	if (m->arena)
		m->room.give(m->room.arg, m->arena, m->arena_len);
	free(m->inputs);
	free(m->slots);
	free(m);
}

size_t model_memory(const struct model *m)
{
	return m->arena_len;
}

/* ---- Embedding and head ---------------------------------------------------------------------- */

/* x [N, D] = the byte's row + the place's row. */
static int embed(struct model *m, real *x)
{
	size_t d = (size_t)m->sizes.dim, t = (size_t)m->batch.length;
	const real *bytes, *places;
	int rc;

	if ((rc = m->weights.use(m->weights.arg, BYTES, &bytes)) ||
	    (rc = m->weights.use(m->weights.arg, PLACES, &places)))
		return rc;
	for (size_t i = 0; i < m->rows; i++)
		m->loops->add(bytes + m->batch.in[i] * d, places + i % t * d, x + i * d, d);
	drop_rows(m, 0, x, x);
	rc = m->weights.release(m->weights.arg, BYTES);
	return rc ? rc : m->weights.release(m->weights.arg, PLACES);
}

static int embed_back(struct model *m)
{
	size_t d = (size_t)m->sizes.dim, t = (size_t)m->batch.length;
	int rc;

	drop_rows(m, 0, m->dstream, m->dstream);
	memset(m->dplaces, 0, (size_t)m->sizes.context * d * sizeof(*m->dplaces));
	for (size_t i = 0; i < m->rows; i++) {
		const real *dx = m->dstream + i * d;
		real *dbyte = m->dbytes + m->batch.in[i] * d, *dplace = m->dplaces + i % t * d;

		m->loops->add(dbyte, dx, dbyte, d);
		m->loops->add(dplace, dx, dplace, d);
	}
	rc = m->weights.gradient(m->weights.arg, PLACES, m->dplaces);
	return rc ? rc : m->weights.gradient(m->weights.arg, BYTES, m->dbytes);
}

static int last_norm(const struct model *m)
{
	return FIRST_BLOCK + PER_BLOCK * m->sizes.layers;
}

/* logits [N, V] = norm(last) bytes'. */
static int head(struct model *m)
{
	size_t d = (size_t)m->sizes.dim;
	const real *bytes;
	int rc;

	if ((rc = normalize(m, last_norm(m), m->last, m->normed, m->mean, m->rstd)) ||
	    (rc = m->weights.use(m->weights.arg, BYTES, &bytes)))
		return rc;
	multiply(m->rows, VALUES, d, 1, (struct matrix){ m->normed, d, false },
		 (struct matrix){ bytes, d, true }, 0, m->logits, VALUES);
	return m->weights.release(m->weights.arg, BYTES);
}

static int head_back(struct model *m)
{
	size_t d = (size_t)m->sizes.dim;
	const real *bytes;
	int rc = m->weights.use(m->weights.arg, BYTES, &bytes);

	if (rc)
		return rc;
	multiply(m->rows, d, VALUES, 1, (struct matrix){ m->logits, VALUES, false },
		 (struct matrix){ bytes, d, false }, 0, m->dnarrow, d);
	if ((rc = m->weights.release(m->weights.arg, BYTES)))
		return rc;
	multiply(VALUES, d, m->rows, 1, (struct matrix){ m->logits, VALUES, true },
		 (struct matrix){ m->normed, d, false }, 0, m->dbytes, d);
	memset(m->dstream, 0, m->rows * d * sizeof(*m->dstream));
	return normalize_back(m, last_norm(m), m->last, m->mean, m->rstd, m->dnarrow, m->dstream);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* The slot of a block, with its input in place. */
static const struct slot *slot_of(struct model *m, int block)
{
	struct slot *s = &m->slots[block % m->sizes.segment];

	if (block % m->sizes.segment == 0)
		s->in = m->inputs[block / m->sizes.segment];
	return s;
}

/* Where a block puts what it gives: the next one's input. */
static real *output_of(struct model *m, int block)
{
	int next = block + 1;

	if (next == m->sizes.layers)
		return m->last;
	return next % m->sizes.segment ? m->slots[next % m->sizes.segment].in
				       : m->inputs[next / m->sizes.segment];
}

static int run_block(struct model *m, int block)
{
	return block_forward(m, block, slot_of(m, block), output_of(m, block));
}

/* Computes the blocks of a segment again: the last one's output is there already. */
static int repeat_segment(struct model *m, int segment)
{
	int first = segment * m->sizes.segment, rc = 0;

	for (int i = 0; rc == 0 && i < m->sizes.segment; i++)
		rc = run_block(m, first + i);
	return rc;
}

static int run_blocks(struct model *m)
{
	int rc = embed(m, m->inputs[0]);

	for (int i = 0; rc == 0 && i < m->sizes.layers; i++)
		rc = run_block(m, i);
	return rc ? rc : head(m);
}

/* ---- Model ----------------------------------------------------------------------------------- */

int model_forward(struct model *m, const struct batch *batch, double scale, double *loss)
{
	int rc;

	m->batch = *batch;
	m->rows = (size_t)batch->count * (size_t)batch->length;
	*loss = 0;
	if ((rc = run_blocks(m)) || m->rows == 0)
		return rc;
	*loss = m->loops->cross_entropy(m->logits, batch->targets, m->rows, VALUES,
					(real)(scale / (double)m->rows)) /
		(double)m->rows;
	return 0;
}

int model_backward(struct model *m)
{
	int rc = head_back(m);

	for (int i = m->sizes.layers - 1; rc == 0 && i >= 0; i--) {
		bool ended = (i + 1) % m->sizes.segment == 0 && i + 1 < m->sizes.layers;

		if (ended)
			rc = repeat_segment(m, i / m->sizes.segment);
		if (rc == 0)
			rc = block_backward(m, i, slot_of(m, i));
	}
	return rc ? rc : embed_back(m);
}

int model_predict(struct model *m, const uint8_t *in, int length, real *logits)
{
	int rc;

	m->batch = (struct batch){ .count = 1, .length = length, .in = in };
	m->rows = (size_t)length;
	if ((rc = run_blocks(m)))
		return rc;
	memcpy(logits, m->logits + (m->rows - 1) * VALUES, VALUES * sizeof(*logits));
	return 0;
}
