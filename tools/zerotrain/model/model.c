/* The whole model: embedding, blocks in segments, head and loss.
 *
 * A segment has sizes.segment blocks, and there are slots for one segment of each batch that a part
 * keeps. Forward keeps the input of each segment. When backward begins, the last segment's
 * activations are still there. It computes those of the other segments again, with the same bits.
 * One segment of all blocks computes nothing twice. */
#include "tools/zerotrain/model/model.h"
#include "tools/zerotrain/model/inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The tensor group ------------------------------------------------------------------------ */

static void product(void *arg, size_t m, size_t n, size_t k, const struct kolo_tp_matrix *a,
		    const struct kolo_tp_matrix *b, int add, void *c, size_t stride)
{
	(void)arg;
	multiply(m, n, k, 1, (struct matrix){ a->at, a->stride, a->transposed },
		 (struct matrix){ b->at, b->stride, b->transposed }, (real)add, c, stride);
}

/* Products with weights have PIECE rows each, in forward passes. So a row has the same bits in any
 * batch, and in a text that grows. */
static void product_in_pieces(void *arg, size_t m, size_t n, size_t k,
			      const struct kolo_tp_matrix *a, const struct kolo_tp_matrix *b,
			      int add, void *c, size_t stride)
{
	struct kolo_tp_matrix rows = *a;
	size_t most = b->transposed && !a->transposed ? PIECE : m;

	for (size_t i = 0; i < m; i += most) {
		rows.at = (const real *)a->at + i * a->stride;
		product(arg, m - i < most ? m - i : most, n, k, &rows, b, add,
			(real *)c + i * stride, stride);
	}
}

int model_group(struct kolo_comm *comm, bool sequence, int segments, struct kolo_tp **out)
{
	const struct kolo_tp_config config = {
		.type = real_type(),
		.sequence = sequence,
		.segments = segments,
		.product = segments ? product_in_pieces : product,
	};

	return kolo_tp_create(comm, &config, out);
}

/* ---- Create and destroy ---------------------------------------------------------------------- */

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

/* The heads of one of `size` ranks. */
static struct layout layout_of(const struct sizes *s, size_t size)
{
	size_t head = (size_t)(s->dim / s->heads);

	return (struct layout){
		.kind = s->kind,
		.head = head,
		.heads = (size_t)s->heads / size,
		.kv_heads = (size_t)kv_heads_of(s) / size,
		.width = (size_t)s->dim / size,
		.pitch = qkv_rows(s) / size,
		.kv_width = (size_t)kv_heads_of(s) / size * head,
		.factor = (real)(1 / sqrt((double)head)),
	};
}

/* What a rank of a tensor group of `size` has. */
static void set_widths(struct model *m, size_t size)
{
	const struct sizes *s = &m->sizes;

	m->own = layout_of(s, size);
	m->around.some = layout_of(s, size * m->around.ranks);
	m->values = (size_t)s->values / size;
	m->inner = (size_t)inner_of(s) / size;
	m->wide = wide_rows(s) / size;
	m->eps = eps_of(s);
}

/* Messages of a ring travel on it while products are computed. */
static bool open_queue(struct model *m)
{
	bool wanted = m->sizes.spread == RING && m->around.ranks > 1;

	return !wanted || kolo_queue_create(&m->around.queue) == 0;
}

struct model *model_create(const struct sizes *sizes, const struct part *parts, int nparts,
			   const struct weights *weights, struct groups groups,
			   const struct room *room)
{
	static const struct room host = { take_of_host, give_to_host, NULL };
	size_t size = sizes->tensor_size > 1 ? (size_t)sizes->tensor_size : 1;
	struct model *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->sizes = *sizes;
	m->weights = *weights;
	m->group = groups.tensor;
	m->room = room ? *room : host;
	m->around.comm = groups.context;
	m->around.ranks = sizes->context_size > 1 ? (size_t)sizes->context_size : 1;
	m->around.rank = (size_t)sizes->context_rank;
	set_widths(m, size);
	m->alone = size == 1 && sizes->segments == 0;
	m->loops = best_loops();
	m->nparts = nparts;
	m->parts = calloc((size_t)nparts, sizeof(*m->parts));
	for (int p = 0; m->parts && p < nparts; p++)
		m->parts[p].is = parts[p];
	use_one_thread();
	if (!m->parts || !plan_memory(m) || !open_queue(m)) {
		model_destroy(m);
		return NULL;
	}
	return m;
}

/* texts: 1 if there is a buffer for texts that grow. */
static void free_part(struct own_part *p, int texts)
{
	for (int i = 0; p->kept && i < p->is.buffers + texts; i++) {
		free(p->kept[i].slots);
		free(p->kept[i].inputs);
	}
	free(p->kept);
}

void model_destroy(struct model *m)
{
	if (!m)
		return;
	kolo_queue_destroy(m->around.queue);
	if (m->arena)
		m->room.give(m->room.arg, m->arena, m->arena_len);
	for (int p = 0; m->parts && p < m->nparts; p++)
		free_part(&m->parts[p], m->sizes.texts > 0);
	free(m->parts);
	free(m);
}

size_t model_memory(const struct model *m)
{
	return m->arena_len;
}

void model_around_get(const struct model *m, struct model_around *out)
{
	*out = m->around.counts;
}

size_t model_boundary(const struct model *m)
{
	size_t first, rows = (size_t)m->sizes.batch * (size_t)m->sizes.context / m->around.ranks;

	return kolo_tp_rows(m->group, rows, &first) * (size_t)m->sizes.dim;
}

/* ---- Embedding and head ---------------------------------------------------------------------- */

static const int32_t *integers(struct model *m, const token *tokens)
{
	if (m->now->grown)
		return m->now->grown->ids;
	for (size_t i = 0; i < m->now->rows; i++)
		m->ids[i] = tokens[i];
	return m->ids;
}

/* Adds to x [O, D] each place's row. */
static int add_places(struct model *m, real *x)
{
	size_t d = (size_t)m->sizes.dim;
	const real *places;
	int rc;

	if (!tensor_is_there(&m->sizes, PLACES))
		return 0;
	if ((rc = m->weights.use(m->weights.arg, PLACES, &places)))
		return rc;
	for (size_t i = 0; i < m->now->own; i++)
		m->loops->add(x + i * d, places + place_of(m, m->now->first + i) * d, x + i * d, d);
	return m->weights.release(m->weights.arg, PLACES);
}

/* x [O, D] = the token's row + the place's row. */
static int embed(struct model *m, real *x)
{
	size_t d = (size_t)m->sizes.dim;
	real *looked_up = own_rows(m, m->beside);
	const real *bytes;
	int rc, released;

	if ((rc = m->weights.use(m->weights.arg, BYTES, &bytes)))
		return rc;
	rc = kolo_tp_embedding_forward(m->group, bytes, (size_t)m->sizes.values,
				       integers(m, m->now->batch.in), m->now->rows, d, m->beside);
	released = m->weights.release(m->weights.arg, BYTES);
	rc = rc ? rc : released;
	if (rc || (rc = add_places(m, looked_up)))
		return rc;
	drop_rows(m, 0, looked_up, x);
	return 0;
}

/* The gradient of places from dx [O, D]: a sum for each segment of rows. */
static void sum_places(struct model *m, const real *dx)
{
	size_t d = (size_t)m->sizes.dim;
	size_t all = (size_t)m->sizes.context * d, n = kolo_tp_row_segments(m->group);

	memset(m->dplaces, 0, n * all * sizeof(*m->dplaces));
	for (size_t s = 0; s < n; s++)
		for (size_t i = s * m->now->own / n; i < (s + 1) * m->now->own / n; i++) {
			real *dplace = m->dplaces + s * all + place_of(m, m->now->first + i) * d;

			m->loops->add(dplace, dx + i * d, dplace, d);
		}
}

static int places_back(struct model *m)
{
	size_t all = (size_t)m->sizes.context * (size_t)m->sizes.dim;
	int rc;

	if (!tensor_is_there(&m->sizes, PLACES))
		return 0;
	sum_places(m, own_rows(m, m->beside));
	rc = kolo_tp_sum(m->group, m->dplaces, all);
	return rc ? rc : m->weights.gradient(m->weights.arg, PLACES, m->dplaces);
}

/* The gradient of BYTES also has the head's part, unless the head is another tensor, or its part is
 * reported apart. */
static int embed_back(struct model *m)
{
	size_t d = (size_t)m->sizes.dim;
	int rc;

	drop_rows(m, 0, m->dstream, own_rows(m, m->beside));
	if (m->weights.apart || m->sizes.untied || m->sizes.layers > m->part->is.end)
		memset(m->dbytes, 0, m->values * d * sizeof(*m->dbytes));
	if ((rc = places_back(m)) ||
	    (rc = kolo_tp_embedding_backward(m->group, (size_t)m->sizes.values,
					     integers(m, m->now->batch.in), m->now->rows, d,
					     m->beside, m->dbytes)))
		return rc;
	return m->weights.gradient(m->weights.arg, BYTES, m->dbytes);
}

static int last_norm(const struct model *m)
{
	return FIRST_BLOCK + PER_BLOCK * m->sizes.layers;
}

/* logits [N, V / G] = norm(last) bytes'. */
static int head(struct model *m)
{
	struct kept *k = m->now;
	int rc = normalize(m, last_norm(m), k->last, own_rows(m, k->normed), k->mean, k->rstd);

	return rc ? rc : unembed(m, k->normed, k->logits);
}

static int report_head(struct model *m)
{
	if (m->sizes.untied)
		return m->weights.gradient(m->weights.arg, head_tensor(&m->sizes), m->dbytes);
	return m->weights.apart
		       ? m->weights.gradient(m->weights.arg, tensor_count(&m->sizes), m->dbytes)
		       : 0;
}

static int head_back(struct model *m)
{
	struct kept *k = m->now;
	enum half half = m->sizes.halves ? INPUTS : BOTH;
	int rc = unembed_back(m, half, k->normed, k->logits, m->beside);

	if (rc == 0 && half == BOTH)
		rc = report_head(m);
	if (rc)
		return rc;
	memset(m->dstream, 0, k->own * (size_t)m->sizes.dim * sizeof(*m->dstream));
	return normalize_back(m, last_norm(m), k->last, k->mean, k->rstd, own_rows(m, m->beside),
			      m->dstream);
}

static int head_weights(struct model *m)
{
	int rc = unembed_back(m, WEIGHTS, m->now->normed, m->now->logits, NULL);

	return rc ? rc : report_head(m);
}

static size_t counted_rows(const struct kept *k)
{
	size_t n = 0;

	for (size_t i = 0; i < k->rows; i++)
		n += !k->batch.counted || k->batch.counted[i];
	return n;
}

/* Those that do not count are KOLO_TP_UNCOUNTED. */
static const int32_t *counted_targets(struct model *m)
{
	const struct batch *b = &m->now->batch;

	integers(m, b->targets);
	for (size_t i = 0; b->counted && i < m->now->rows; i++)
		if (!b->counted[i])
			m->ids[i] = KOLO_TP_UNCOUNTED;
	return m->ids;
}

/* Replaces logits by their derivative. */
static int find_loss(struct model *m, double scale, double *loss)
{
	struct kept *k = m->now;
	double n = (double)counted_rows(k);
	int rc = 0;

	if (k->rows == 0)
		return 0;
	if (n == 0)
		n = 1;
	if (m->alone)
		*loss = m->loops->cross_entropy(k->logits, k->batch.targets, k->batch.counted,
						k->rows, m->values, (real)(scale / n));
	else
		rc = kolo_tp_cross_entropy(m->group, k->logits, (size_t)m->sizes.values,
					   counted_targets(m), k->rows, scale / n, loss);
	*loss /= n;
	return rc;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* The slot of a block, with its input in place. */
static const struct slot *slot_of(struct model *m, int block)
{
	int i = block - m->part->is.first, segment = m->part->segment;
	struct slot *s = &m->now->slots[i % segment];

	if (i % segment == 0)
		s->in = m->now->inputs[i / segment];
	return s;
}

/* Where a block puts what it gives: the next one's input. */
static real *output_of(struct model *m, int block)
{
	int next = block + 1 - m->part->is.first, segment = m->part->segment;

	if (block + 1 == m->part->is.end)
		return m->now->last;
	return next % segment ? m->now->slots[next % segment].in : m->now->inputs[next / segment];
}

static int run_block(struct model *m, int block)
{
	return block_forward(m, block, slot_of(m, block), output_of(m, block));
}

/* Computes the blocks of a segment again: the last one's output is there already. */
static int repeat_segment(struct model *m, int segment)
{
	int first = m->part->is.first + segment * m->part->segment, rc = 0;

	for (int i = 0; rc == 0 && i < m->part->segment; i++)
		rc = run_block(m, first + i);
	return rc;
}

/* ---- Model ----------------------------------------------------------------------------------- */

static void choose(struct model *m, int part, int buffer)
{
	m->part = &m->parts[part];
	m->now = &m->part->kept[buffer];
}

/* From embedding or input to logits or output, of `rows` rows. */
static int run_part(struct model *m, size_t rows, const real *input, real *output)
{
	int rc = 0;

	m->now->rows = rows;
	m->now->own = kolo_tp_rows(m->group, m->now->rows, &m->now->first);
	if (m->part->is.first == 0)
		rc = embed(m, m->now->inputs[0]);
	else
		m->now->inputs[0] = (real *)input; /* which is only read */
	if (output)
		m->now->last = output;
	for (int i = m->part->is.first; rc == 0 && i < m->part->is.end; i++)
		rc = run_block(m, i);
	if (rc == 0 && m->part->is.end == m->sizes.layers)
		rc = head(m);
	return rc;
}

int model_forward(struct model *m, int part, int buffer, const struct batch *batch, double scale,
		  const real *input, real *output, double *loss)
{
	int rc;

	choose(m, part, buffer);
	m->now->batch = *batch;
	*loss = 0;
	rc = run_part(m, (size_t)batch->count * (size_t)batch->length, input, output);
	if (rc == 0 && m->part->is.end == m->sizes.layers && batch->targets)
		rc = find_loss(m, scale, loss);
	return rc;
}

int model_extend(struct model *m, int part, const struct piece *pieces, const real *input,
		 real *output)
{
	choose(m, part, m->parts[part].is.buffers);
	place_pieces(m, pieces);
	m->now->grown = &m->grown;
	return run_part(m, model_grown(m, pieces), input, output);
}

static int back_inputs(struct model *m, const real *doutput, real *dinput)
{
	size_t len = m->now->own * (size_t)m->sizes.dim * sizeof(*doutput);
	int first = m->part->is.first, last = m->part->is.end - 1, rc = 0;

	if (last + 1 == m->sizes.layers)
		rc = head_back(m);
	else
		memcpy(m->dstream, doutput, len);
	for (int i = last; rc == 0 && i >= first; i--) {
		if ((i + 1 - first) % m->part->segment == 0 && i < last)
			rc = repeat_segment(m, (i - first) / m->part->segment);
		if (rc == 0)
			rc = block_backward(m, i, slot_of(m, i));
	}
	if (rc == 0 && first == 0)
		rc = embed_back(m);
	else if (rc == 0)
		memcpy(dinput, m->dstream, len);
	return rc;
}

static int back_weights(struct model *m)
{
	int rc = m->part->is.end == m->sizes.layers ? head_weights(m) : 0;

	for (int i = m->part->is.end - 1; rc == 0 && i >= m->part->is.first; i--)
		rc = block_weights(m, i, slot_of(m, i));
	return rc;
}

int model_backward(struct model *m, int part, int buffer, enum half half, const real *doutput,
		   real *dinput)
{
	int rc;

	choose(m, part, buffer);
	rc = half == WEIGHTS ? 0 : back_inputs(m, doutput, dinput);
	/* In halves, backward for inputs computes these alone. */
	return rc == 0 && (half == WEIGHTS || (half == BOTH && m->sizes.halves)) ? back_weights(m)
										 : rc;
}

const real *model_next(const struct model *m, int part, int text)
{
	const struct grown *g = &m->grown;
	size_t row = (size_t)(g->row_of[text] + g->pieces[text].count - 1);

	return model_logits(m, part, m->parts[part].is.buffers, row);
}

const real *model_logits(const struct model *m, int part, int buffer, size_t row)
{
	return m->parts[part].kept[buffer].logits + row * m->values;
}
