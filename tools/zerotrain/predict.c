/* What comes after texts: by a cache of keys and values, place by place, or, without it, by the
 * whole texts again. */
#include "tools/zerotrain/run.h"

#include <stdlib.h>
#include <string.h>

/* ---- Logits ---------------------------------------------------------------------------------- */

/* Puts together what a tensor group has of each text: [ranks, texts, V / G] becomes [texts, V]. */
static void join(const real *all, int ranks, int texts, size_t n, real *out)
{
	for (int t = 0; t < texts; t++)
		for (int g = 0; g < ranks; g++, out += n)
			memcpy(out, all + ((size_t)g * (size_t)texts + (size_t)t) * n,
			       n * sizeof(*out));
}

/* V / G: the values that this rank has logits of. */
static size_t values_of(const struct run *r)
{
	return (size_t)r->options->model.values / (size_t)r->parallel.place.tensor_size;
}

/* The last stage's tensor group has the logits own[texts, V / G]; all others get them. */
static int share_logits(struct run *r, const real *own, int texts, real *logits)
{
	const struct parallel *p = &r->parallel;
	int ranks = p->place.tensor_size, stages = p->place.pipe_size, rc = 0;
	size_t each = (size_t)texts * values_of(r), all = each * (size_t)ranks;
	real *gathered = malloc(all * sizeof(*gathered));

	if (!gathered)
		return kolo_error_set(KOLO_ENOMEM, "logits of %d texts: out of memory", texts);
	if (parallel_has_head(p) && ranks == 1)
		memcpy(logits, own, all * sizeof(*logits));
	else if (parallel_has_head(p))
		rc = kolo_all_gather(kolo_grid_comm(p->grid, KOLO_GRID_TENSOR), own, gathered, each,
				     KOLO_F32, NULL);
	if (rc == 0 && parallel_has_head(p) && ranks > 1)
		join(gathered, ranks, texts, values_of(r), logits);
	free(gathered);
	if (rc == 0 && stages > 1)
		rc = kolo_broadcast(kolo_grid_comm(p->grid, KOLO_GRID_PIPE), logits, logits, all,
				    KOLO_F32, stages - 1, NULL);
	return rc;
}

/* ---- Whole texts ----------------------------------------------------------------------------- */

/* No place sees those behind it, so a text may be longer than it is. Each rank of a group with
 * sequence parallelism has equally many rows; --exact promises bits for whole pieces. */
static int padded(const struct run *r, size_t length)
{
	size_t unit = r->options->sequence ? (size_t)r->parallel.place.tensor_size : 1;

	if (r->options->exact)
		unit = PIECE;
	length = (length + unit - 1) / unit * unit;
	return (int)(length < r->data.context ? length : r->data.context);
}

static int compute_text(struct run *r, const struct text *text, real *own)
{
	size_t n = text->len - text->begin;
	struct batch batch = { .count = 1, .in = r->in, .length = padded(r, n) };
	double loss;
	int rc;

	memset(r->in, 0, (size_t)batch.length * sizeof(*r->in));
	memcpy(r->in, text->tokens + text->begin, n * sizeof(*r->in));
	rc = run_forward(r, &batch, &loss);
	if (rc == 0 && parallel_has_head(&r->parallel))
		memcpy(own, model_logits(r->model, r->parallel.chunks - 1, 0, n - 1),
		       values_of(r) * sizeof(*own));
	return rc;
}

/* ---- Place by place -------------------------------------------------------------------------- */

static int extend_part(struct run *r, int part, const float *input, float *output, void *arg)
{
	return model_extend(r->model, part, arg, input, output);
}

/* The next places of a text, up to the end of their piece. */
static struct piece next_piece(const struct text *text)
{
	size_t end = text->len - text->begin, most = PIECE - text->known % PIECE;
	size_t count = end - text->known < most ? end - text->known : most;

	return (struct piece){ (int)text->known, (int)count,
			       text->tokens + text->begin + text->known };
}

/* Computes places until all of all texts are known. */
static int extend_texts(struct run *r, struct text *texts, struct piece *pieces, real *own)
{
	size_t each = values_of(r);
	int n = r->options->samples, rc = 0;
	bool more = true;

	while (rc == 0 && more) {
		more = false;
		for (int i = 0; i < n; i++)
			pieces[i] = next_piece(&texts[i]);
		rc = pass_stages(r, model_grown(r->model, pieces), extend_part, pieces);
		for (int i = 0; rc == 0 && i < n; i++) {
			texts[i].known += (size_t)pieces[i].count;
			more = more || texts[i].known < texts[i].len - texts[i].begin;
			if (pieces[i].count && parallel_has_head(&r->parallel))
				memcpy(own + (size_t)i * each,
				       model_next(r->model, r->parallel.chunks - 1, i),
				       each * sizeof(*own));
		}
	}
	return rc;
}

/* ---- Both ------------------------------------------------------------------------------------ */

/* Keys have their absolute place in them, learned or as a turn, so they are of no use at another.
 */
static void slide(const struct run *r, struct text *text)
{
	size_t half = r->data.context > 1 ? r->data.context / 2 : 1;

	if (text->len - text->begin <= r->data.context)
		return;
	text->begin = text->len - half;
	text->known = 0;
}

int predict(struct run *r, struct text *texts, real *logits)
{
	size_t each = values_of(r);
	int n = r->options->samples, rc = 0;
	real *own = calloc((size_t)n * each, sizeof(*own));
	struct piece *pieces = calloc((size_t)n, sizeof(*pieces));

	if (!own || !pieces)
		rc = kolo_error_set(KOLO_ENOMEM, "%d texts: out of memory", n);
	for (int i = 0; rc == 0 && i < n; i++)
		slide(r, &texts[i]);
	if (rc == 0 && r->options->cache)
		rc = extend_texts(r, texts, pieces, own);
	for (int i = 0; rc == 0 && !r->options->cache && i < n; i++)
		rc = compute_text(r, &texts[i], own + (size_t)i * each);
	if (rc == 0)
		rc = share_logits(r, own, n, logits);
	free(own);
	free(pieces);
	return rc;
}
