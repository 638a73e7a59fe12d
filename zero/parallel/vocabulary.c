/* A vocabulary that is divided over the ranks of a tensor group: its embedding, and the
 * cross-entropy of its logits (kolo_tp_embedding_forward and so on). */
#include "zero/base/basics.h"
#include "zero/parallel/tp.h"

#include <math.h>
#include <string.h>

/* This rank's share of a vocabulary. */
struct share {
	size_t first, n;
};

/* Checks the vocabulary and all ids: they are the same on all ranks, and so is what this
 * returns. `least`: of an id. */
static int find_share(const struct kolo_tp *tp, const char *what, size_t vocabulary,
		      const int32_t *ids, int32_t least, size_t rows, struct share *out)
{
	size_t parts = tp->size * tp->segments;

	if (vocabulary % parts || vocabulary == 0)
		return kolo_error_set(
			KOLO_EINVAL,
			"a vocabulary of %zu on %zu ranks%s: want a multiple of %zu: pad it",
			vocabulary, tp->size, tp->segments > 1 ? " with segments" : "", parts);
	for (size_t r = 0; r < rows; r++)
		if (ids[r] < least || (ids[r] >= 0 && (size_t)ids[r] >= vocabulary))
			return kolo_error_set(KOLO_EINVAL,
					      "%s %zu is %d, and the vocabulary has 0 to %zu", what,
					      r, (int)ids[r], vocabulary - 1);
	*out = (struct share){ vocabulary / tp->size * tp->rank, vocabulary / tp->size };
	return 0;
}

/* Whether the share has an id, and none has KOLO_TP_UNCOUNTED; *row becomes its row there. */
static bool owns(struct share s, int32_t id, size_t *row)
{
	*row = (size_t)id - s.first;
	return (size_t)id >= s.first && *row < s.n;
}

/* ---- Embedding ------------------------------------------------------------------------------- */

int kolo_tp_embedding_forward(struct kolo_tp *tp, const void *table, size_t vocabulary,
			      const int32_t *ids, size_t rows, size_t columns, void *y)
{
	size_t len = columns * tp->elem, row;
	const char *from = table;
	struct share share;
	char *to = y;
	int rc = find_share(tp, "id", vocabulary, ids, 0, rows, &share);

	if (rc < 0)
		return rc;
	for (size_t r = 0; r < rows; r++, to += len)
		if (owns(share, ids[r], &row))
			memcpy(to, from + row * len, len);
		else
			memset(to, 0, len);
	return kolo_tp_reduce(tp, y, rows, columns);
}

int kolo_tp_embedding_backward(struct kolo_tp *tp, size_t vocabulary, const int32_t *ids,
			       size_t rows, size_t columns, void *dy, void *dtable)
{
	size_t len = columns * tp->elem, row;
	const char *from = dy;
	struct share share;
	char *to = dtable;
	int rc = find_share(tp, "id", vocabulary, ids, 0, rows, &share);

	if (rc == 0)
		rc = kolo_tp_gather(tp, dy, rows, columns);
	for (size_t r = 0; rc == 0 && r < rows; r++, from += len)
		if (owns(share, ids[r], &row))
			zero_tp_add(tp->config.type, to + row * len, from, columns);
	return rc;
}

/* ---- Cross-entropy --------------------------------------------------------------------------- */

/* The loops over a row of either type. */
#define DEFINE_ROWS(type, exponential)                                                             \
	static double max_##type(const type *x, size_t n)                                          \
	{                                                                                          \
		type max = x[0];                                                                   \
                                                                                                   \
		for (size_t i = 1; i < n; i++)                                                     \
			max = x[i] > max ? x[i] : max;                                             \
		return (double)max;                                                                \
	}                                                                                          \
                                                                                                   \
	/* Replaces x by e^(x - max). Returns the sum. */                                          \
	static double raise_##type(type *x, size_t n, double max)                                  \
	{                                                                                          \
		double sum = 0;                                                                    \
                                                                                                   \
		for (size_t i = 0; i < n; i++) {                                                   \
			x[i] = exponential(x[i] - (type)max);                                      \
			sum += (double)x[i];                                                       \
		}                                                                                  \
		return sum;                                                                        \
	}                                                                                          \
                                                                                                   \
	/* x times scale. */                                                                       \
	static void scale_##type(type *x, size_t n, double scale)                                  \
	{                                                                                          \
		for (size_t i = 0; i < n; i++)                                                     \
			x[i] *= (type)scale;                                                       \
	}

DEFINE_ROWS(float, expf)
DEFINE_ROWS(double, exp)

static double at_row(const struct kolo_tp *tp, const char *row, size_t i)
{
	return tp->config.type == KOLO_F32 ? (double)((const float *)row)[i]
					   : ((const double *)row)[i];
}

static void lower(const struct kolo_tp *tp, char *row, size_t i, double by)
{
	if (tp->config.type == KOLO_F32)
		((float *)row)[i] -= (float)by;
	else
		((double *)row)[i] -= by;
}

static double max_of(const struct kolo_tp *tp, const char *row, size_t n)
{
	return tp->config.type == KOLO_F32 ? max_float((const float *)row, n)
					   : max_double((const double *)row, n);
}

static double raise(const struct kolo_tp *tp, char *row, size_t n, double max)
{
	return tp->config.type == KOLO_F32 ? raise_float((float *)row, n, max)
					   : raise_double((double *)row, n, max);
}

static void scale(const struct kolo_tp *tp, char *row, size_t n, double factor)
{
	if (tp->config.type == KOLO_F32)
		scale_float((float *)row, n, factor);
	else
		scale_double((double *)row, n, factor);
}

/* What goes over the group for each row: its largest logit; then the sum of exponentials, and the
 * target's logit less the largest, which one rank has and the others give as zero. */
struct totals {
	double *max;     /* [rows] */
	double *targets; /* [rows] */
	double *sums; /* [segments][rows], behind targets; the first is of all segments in the end
		       */
};

/* Of each row the sum of each segment's exponentials, which replace the logits. */
static void raise_rows(const struct kolo_tp *tp, char *logits, struct share share, size_t rows,
		       const struct totals *t)
{
	size_t width = share.n / tp->segments;

	for (size_t s = 0; s < tp->segments; s++)
		for (size_t r = 0; r < rows; r++)
			t->sums[s * rows + r] =
				raise(tp, logits + (r * share.n + s * width) * tp->elem, width,
				      t->max[r]);
	zero_tp_fold(KOLO_F64, t->sums, tp->segments, rows);
}

static void find_targets(const struct kolo_tp *tp, const char *logits, struct share share,
			 const int32_t *targets, size_t rows, const struct totals *t)
{
	size_t column;

	for (size_t r = 0; r < rows; r++) {
		const char *row = logits + r * share.n * tp->elem;

		t->targets[r] =
			owns(share, targets[r], &column) ? at_row(tp, row, column) - t->max[r] : 0;
	}
}

static int find_totals(struct kolo_tp *tp, char *logits, struct share share, const int32_t *targets,
		       size_t rows, struct totals *t)
{
	size_t n = tp->segments > 1 ? tp->segments : 1;
	int rc = zero_tp_room(tp, (n + 2) * rows * sizeof(double));

	if (rc < 0)
		return rc;
	t->targets = (double *)tp->sums;
	t->sums = t->targets + rows;
	t->max = t->sums + n * rows;
	for (size_t r = 0; r < rows; r++)
		t->max[r] = max_of(tp, logits + r * share.n * tp->elem, share.n);
	if ((rc = zero_tp_all_reduce(tp, t->max, rows, KOLO_F64, KOLO_MAX)) < 0)
		return rc;
	find_targets(tp, logits, share, targets, rows, t);
	raise_rows(tp, logits, share, rows, t);
	/* Targets and sums are behind each other. */
	return zero_tp_all_reduce(tp, t->targets, 2 * rows, KOLO_F64, KOLO_SUM);
}

int kolo_tp_cross_entropy(struct kolo_tp *tp, void *logits, size_t vocabulary,
			  const int32_t *targets, size_t rows, double factor, double *loss)
{
	struct share share;
	struct totals t;
	size_t column;
	int rc = find_share(tp, "target", vocabulary, targets, KOLO_TP_UNCOUNTED, rows, &share);

	*loss = 0;
	if (rc == 0)
		rc = find_totals(tp, logits, share, targets, rows, &t);
	for (size_t r = 0; rc == 0 && r < rows; r++) {
		char *row = (char *)logits + r * share.n * tp->elem;

		if (targets[r] == KOLO_TP_UNCOUNTED) {
			memset(row, 0, share.n * tp->elem);
			continue;
		}
		*loss += log(t.sums[r]) - t.targets[r];
		scale(tp, row, share.n, factor / t.sums[r]);
		if (owns(share, targets[r], &column))
			lower(tp, row, column, factor);
	}
	return rc;
}
