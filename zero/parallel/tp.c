/* Tensor parallelism: the group, and what goes over it (kolo_tp_gather, kolo_tp_reduce).
 *
 * With segments the group adds in the order "tree", and a rank adds its own segments in the same
 * way. So the whole is one binary tree over all segments, whichever ranks have them. */
#include "zero/parallel/tp.h"
#include "zero/base/basics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Create and destroy ---------------------------------------------------------------------- */

static int check_config(const struct kolo_tp_config *c, size_t size)
{
	for (size_t i = 0; i < sizeof(c->reserved) / sizeof(c->reserved[0]); i++)
		if (c->reserved[i])
			return kolo_error_set(KOLO_EINVAL,
					      "tensor parallelism: config.reserved is not zero");
	if (c->type != KOLO_F32 && c->type != KOLO_F64)
		return kolo_error_set(
			KOLO_EINVAL,
			"tensor parallelism with type %s: f32 and f64 are what it computes in",
			kolo_type_name(c->type) ? kolo_type_name(c->type) : "?");
	if ((c->sequence | 1) != 1)
		return kolo_error_set(KOLO_EINVAL,
				      "tensor parallelism with config.sequence %d: want 0 or 1",
				      c->sequence);
	if (!c->product)
		return kolo_error_set(KOLO_EINVAL,
				      "tensor parallelism without config.product: layers need it");
	if (c->segments < 0 || (c->segments & (c->segments - 1)) ||
	    (c->segments && (size_t)c->segments % size))
		return kolo_error_set(
			KOLO_EINVAL,
			"tensor parallelism of %zu ranks in %d segments: want a power of two that is a multiple of the ranks",
			size, c->segments);
	return 0;
}

/* All ranks passed the same settings. */
static int compare(struct kolo_comm *comm, const struct kolo_tp_config *c)
{
	const int64_t own[] = { c->type,     -(int64_t)c->type,
				c->sequence, -(int64_t)c->sequence,
				c->segments, -(int64_t)c->segments };
	int64_t most[sizeof(own) / sizeof(own[0])];
	int rc = kolo_all_reduce(comm, own, most, sizeof(own) / sizeof(own[0]), KOLO_I64, KOLO_MAX,
				 NULL);

	for (int i = 0; rc == 0 && i < 6; i += 2)
		if (most[i] != -most[i + 1])
			return kolo_error_set(
				KOLO_EMISMATCH,
				"tensor parallelism: rank %d has type %s, sequence %d, segments %d, and another rank has not",
				kolo_comm_rank(comm), kolo_type_name(c->type), c->sequence,
				c->segments);
	return rc;
}

int kolo_tp_create(struct kolo_comm *comm, const struct kolo_tp_config *config,
		   struct kolo_tp **out)
{
	size_t size = comm ? (size_t)kolo_comm_nranks(comm) : 1;
	struct kolo_tp *tp;
	int rc;

	*out = NULL;
	rc = check_config(config, size);
	tp = rc == 0 ? calloc(1, sizeof(*tp)) : NULL;
	if (rc == 0 && !tp)
		rc = kolo_error_set(KOLO_ENOMEM, "tensor parallelism: out of memory");
	/* A rank that does not go on would leave the others waiting. */
	if (comm)
		rc = zero_share_failure(comm, rc);
	if (rc == 0 && comm)
		rc = compare(comm, config);
	if (rc < 0) {
		free(tp);
		return rc;
	}
	tp->config = *config;
	tp->size = size;
	tp->elem = kolo_type_size(config->type);
	tp->segments = config->segments ? (size_t)config->segments / size : 1;
	if (size > 1) {
		tp->rank = (size_t)kolo_comm_rank(comm);
		rc = config->segments
			     ? kolo_comm_split_order(comm, 0, (int)tp->rank, "tree", &tp->comm)
			     : kolo_comm_split(comm, 0, (int)tp->rank, &tp->comm);
	}
	if (rc < 0) {
		kolo_tp_destroy(tp);
		return rc;
	}
	*out = tp;
	return 0;
}

void kolo_tp_destroy(struct kolo_tp *tp)
{
	if (!tp)
		return;
	kolo_comm_destroy(tp->comm);
	free(tp->sums);
	free(tp);
}

int zero_tp_room(struct kolo_tp *tp, size_t len)
{
	char *sums;

	if (len <= tp->sums_len)
		return 0;
	sums = aligned_alloc(64, (len + 63) / 64 * 64);
	if (!sums) {
		kolo_comm_abort(tp->comm);
		return kolo_error_set(KOLO_ENOMEM,
				      "tensor parallelism: %zu bytes of sums: out of memory", len);
	}
	free(tp->sums);
	tp->sums = sums;
	tp->sums_len = len;
	return 0;
}

/* ---- Sums ------------------------------------------------------------------------------------ */

void zero_tp_add(enum kolo_type type, void *a, const void *b, size_t n)
{
	float *af = a;
	double *ad = a;
	const float *bf = b;
	const double *bd = b;

	if (type == KOLO_F32)
		for (size_t i = 0; i < n; i++)
			af[i] += bf[i];
	else
		for (size_t i = 0; i < n; i++)
			ad[i] += bd[i];
}

void zero_tp_fold(enum kolo_type type, void *sums, size_t count, size_t n)
{
	size_t len = n * kolo_type_size(type);
	char *at = sums;

	for (size_t step = 1; step < count; step *= 2)
		for (size_t i = 0; i < count; i += 2 * step)
			zero_tp_add(type, at + i * len, at + (i + step) * len, n);
}

/* ---- Over the group -------------------------------------------------------------------------- */

/* Notes a collective that began at `began`, and for which a ring sends `times` (T - 1) / T of n
 * elements of `len` bytes. */
static void note(struct kolo_tp *tp, uint64_t *count, double began, uint64_t times, size_t n,
		 size_t len)
{
	++*count;
	tp->report.model_sent_bytes += times * n * len * (tp->size - 1) / tp->size;
	tp->report.wait += zero_now() - began;
}

int zero_tp_all_reduce(struct kolo_tp *tp, void *x, size_t n, enum kolo_type type, enum kolo_op op)
{
	double began = zero_now();
	int rc;

	if (!tp->comm)
		return 0;
	rc = kolo_all_reduce(tp->comm, x, x, n, type, op, NULL);
	note(tp, &tp->report.reductions, began, 2, n, kolo_type_size(type));
	return rc;
}

size_t kolo_tp_rows(const struct kolo_tp *tp, size_t rows, size_t *first)
{
	size_t own = tp->config.sequence ? rows / tp->size : rows;

	*first = tp->config.sequence ? own * tp->rank : 0;
	return own;
}

static int check_rows(const struct kolo_tp *tp, size_t rows)
{
	if (rows % tp->size == 0)
		return 0;
	return kolo_error_set(
		KOLO_EINVAL,
		"sequence parallelism: %zu rows on %zu ranks: want a multiple of the ranks", rows,
		tp->size);
}

/* The own rows of x. */
static char *own_rows(const struct kolo_tp *tp, void *x, size_t rows, size_t columns, size_t *n)
{
	size_t first;

	*n = kolo_tp_rows(tp, rows, &first) * columns;
	return (char *)x + first * columns * tp->elem;
}

int kolo_tp_gather(struct kolo_tp *tp, void *x, size_t rows, size_t columns)
{
	double began = zero_now();
	size_t n;
	char *own;
	int rc;

	if (!tp->comm || !tp->config.sequence)
		return 0;
	if ((rc = check_rows(tp, rows)) < 0)
		return rc;
	own = own_rows(tp, x, rows, columns, &n);
	rc = kolo_all_gather(tp->comm, own, x, n, tp->config.type, NULL);
	note(tp, &tp->report.gathers, began, 1, rows * columns, tp->elem);
	return rc;
}

int kolo_tp_reduce(struct kolo_tp *tp, void *x, size_t rows, size_t columns)
{
	double began = zero_now();
	size_t n;
	char *own;
	int rc;

	if (!tp->comm)
		return 0;
	if (!tp->config.sequence)
		return zero_tp_all_reduce(tp, x, rows * columns, tp->config.type, KOLO_SUM);
	if ((rc = check_rows(tp, rows)) < 0)
		return rc;
	own = own_rows(tp, x, rows, columns, &n);
	rc = kolo_reduce_scatter(tp->comm, x, own, n, tp->config.type, KOLO_SUM, NULL);
	note(tp, &tp->report.reductions, began, 1, rows * columns, tp->elem);
	return rc;
}

size_t kolo_tp_row_segments(const struct kolo_tp *tp)
{
	return tp->config.sequence || !tp->config.segments ? tp->segments
							   : (size_t)tp->config.segments;
}

int kolo_tp_sum(struct kolo_tp *tp, void *gradient, size_t n)
{
	zero_tp_fold(tp->config.type, gradient, kolo_tp_row_segments(tp), n);
	return tp->config.sequence ? zero_tp_all_reduce(tp, gradient, n, tp->config.type, KOLO_SUM)
				   : 0;
}

void kolo_tp_report_get(const struct kolo_tp *tp, struct kolo_tp_report *out)
{
	struct kolo_stats stats;

	*out = tp->report;
	out->memory_bytes = tp->sums_len;
	if (tp->comm && kolo_comm_stats(tp->comm, &stats) == 0)
		out->sent_bytes = stats.sent_bytes;
}
