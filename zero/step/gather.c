/* Gathers parameters: one whole tensor where it lies (zero_gather_whole), or what was updated,
 * bucket by bucket (zero_gather_updated).
 *
 * With a queue the step ends while the last gathers run. kolo_zero_use waits for the buckets of its
 * tensor, so they run beside the next forward. */
#include "zero/step/gather.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/tensor.h"
#include "zero/offload/compute.h"

#include <stdlib.h>

/* Sends each owner's part by a broadcast of its own. The bytes are those of an all-gather. */
static int broadcast_parts(struct kolo_zero *z, char *base, const size_t *counts, size_t n,
			   enum kolo_type type, struct kolo_queue *queue)
{
	size_t at = 0;
	int rc = 0;

	for (int r = 0; rc == 0 && r < z->nranks; r++) {
		size_t count = counts ? counts[r] : n;
		char *part = zero_at(base, type, at);

		rc = kolo_broadcast(z->data, part, part, count, type, r, queue);
		at += count;
	}
	return rc;
}

/* Counts what this rank sends in a gather of n elements: all except the next rank's part. */
static void count_gather(struct kolo_zero *z, size_t n, size_t next, size_t real,
			 enum kolo_type type)
{
	z->traffic.gathers++;
	z->traffic.parameter_bytes += (n - next) * kolo_type_size(type);
	z->traffic.padding_bytes +=
		(n - real) * kolo_type_size(type) * (uint64_t)(z->nranks - 1) / (uint64_t)z->nranks;
}

void zero_count_whole(struct kolo_zero *z, const struct zero_tensor *t)
{
	struct zero_part next = zero_owned(t->n, z->nranks, (z->rank + 1) % z->nranks);

	count_gather(z, t->n, next.n, t->n, t->type);
}

void zero_count_gather(struct kolo_zero *z, const struct zero_bucket *b)
{
	const struct zero_plan *plan = &z->gatherer.plan;

	if (b->whole)
		zero_count_whole(z, &z->tensors[plan->pieces[b->first].tensor]);
	else
		count_gather(z, (size_t)z->nranks * b->n, b->n, zero_bucket_elements(z, plan, b),
			     b->type);
}

static int gather_whole(struct kolo_zero *z, struct zero_tensor *t, const void *src,
			struct kolo_queue *queue)
{
	size_t *counts = z->gatherer.counts;
	const char *own = zero_at(t->param, t->type, t->own.first);
	bool even = t->chunk * (size_t)z->nranks == t->n;

	for (int r = 0; r < z->nranks; r++)
		counts[r] = zero_owned(t->n, z->nranks, r).n;
	zero_count_whole(z, t);
	/* The own part of a sharded tensor is elsewhere, and is read there. */
	if (!z->config.allgather && !src)
		return broadcast_parts(z, t->param, counts, 0, t->type, queue);
	if (even)
		return kolo_all_gather(z->data, src ? src : own, t->param, t->chunk, t->type,
				       queue);
	return kolo_all_gather_v(z->data, src ? src : own, t->param, counts, t->type, queue);
}

int zero_gather_whole(struct kolo_zero *z, struct zero_tensor *t, const void *src,
		      struct kolo_queue *queue)
{
	double began = zero_now();
	int rc = gather_whole(z, t, src, queue);

	z->times.gather += zero_now() - began;
	return rc;
}

/* ---- What was updated ------------------------------------------------------------------------ */

int zero_gatherer_open(struct kolo_zero *z)
{
	struct zero_gatherer *g = &z->gatherer;
	size_t n = (size_t)g->plan.nbuckets + 1;
	int rc = 0;

	g->counts = calloc((size_t)z->nranks, sizeof(*g->counts));
	g->marks = calloc(n, sizeof(*g->marks));
	g->buffer_of = calloc(n, sizeof(*g->buffer_of));
	if (!g->counts || !g->marks || !g->buffer_of)
		return kolo_error_set(KOLO_ENOMEM, "gathers of %d buckets: out of memory",
				      g->plan.nbuckets);
	for (int b = 0; rc == 0 && b < g->plan.nbuckets; b++)
		rc = zero_mark_open(z, &g->marks[b]);
	for (int i = 0; i < g->nbuffers; i++)
		g->buffers[i] =
			zero_arena_take(&z->arenas[ZERO_ON_DEVICE][ZERO_BUCKETS], g->buffer_len);
	for (int p = 0, bucket = 0; p < g->plan.npieces; p++) {
		while (p >= g->plan.buckets[bucket].first + g->plan.buckets[bucket].npieces)
			bucket++;
		z->tensors[g->plan.pieces[p].tensor].last_gather = bucket + 1;
	}
	return rc;
}

void zero_gatherer_close(struct kolo_zero *z)
{
	struct zero_gatherer *g = &z->gatherer;

	for (int b = 0; g->marks && b < g->plan.nbuckets; b++)
		zero_mark_close(&g->marks[b]);
	free(g->marks);
	free(g->buffer_of);
	free(g->counts);
}

/* Copies this rank's parts of tensors into a bucket, or the other ranks' parts out of it. */
static int copy_parts(struct kolo_zero *z, const struct zero_bucket *b, char *memory, bool in)
{
	size_t size = kolo_type_size(b->type);
	int rc = 0;

	for (int p = b->first; p < b->first + b->npieces; p++) {
		const struct zero_piece *piece = &z->gatherer.plan.pieces[p];
		const struct zero_tensor *t = &z->tensors[piece->tensor];

		for (int r = 0; rc == 0 && r < z->nranks; r++) {
			struct zero_part part =
				zero_part_of(t->n, z->nranks, r, piece->first, piece->n);
			char *here = memory + ((size_t)r * b->n + piece->at) * size;
			char *there = t->param + part.first * size;

			if (in && r == z->rank)
				rc = zero_compute_copy(z, there, b->type, here, part.n);
			if (!in && r != z->rank)
				rc = zero_compute_copy(z, here, b->type, there, part.n);
		}
	}
	return rc == 0 && !in ? zero_compute_wait(z) : rc;
}

int zero_gather_finish(struct kolo_zero *z, int nbuckets)
{
	struct zero_gatherer *g = &z->gatherer;
	int rc = 0;

	for (; rc == 0 && g->finished < g->started && g->finished < nbuckets; g->finished++) {
		const struct zero_bucket *b = &g->plan.buckets[g->finished];
		double began = zero_now();

		rc = zero_mark_wait(z, &g->marks[g->finished]);
		z->times.gather += zero_now() - began;
		if (rc == 0 && !b->whole)
			rc = copy_parts(z, b, g->buffers[g->buffer_of[g->finished]], false);
	}
	return rc;
}

int zero_gather_finish_all(struct kolo_zero *z)
{
	int rc = zero_gather_finish(z, z->gatherer.plan.nbuckets);

	/* Uploads of tensors that are gathered only for use. */
	return rc == 0 ? zero_upload_wait(z, z->last_upload) : rc;
}

static int gather_partial(struct kolo_zero *z, const struct zero_bucket *b, char *memory)
{
	char *own = zero_at(memory, b->type, (size_t)z->rank * b->n);
	double began = zero_now();
	int rc = copy_parts(z, b, memory, true);

	if (rc < 0)
		return rc;
	zero_count_gather(z, b);
	if (z->config.allgather)
		rc = kolo_all_gather(z->data, own, memory, b->n, b->type, z->queue);
	else
		rc = broadcast_parts(z, memory, NULL, b->n, b->type, z->queue);
	z->times.gather += zero_now() - began;
	return rc;
}

/* Starts to gather bucket number `started`. Its buffer is free when the bucket that had it last is
 * finished. */
static int start_gather(struct kolo_zero *z, int *turn, int *last_of_buffer)
{
	struct zero_gatherer *g = &z->gatherer;
	const struct zero_bucket *b = &g->plan.buckets[g->started];
	int rc;

	if (b->whole) {
		rc = zero_gather_whole(z, &z->tensors[g->plan.pieces[b->first].tensor], NULL,
				       z->queue);
	} else {
		int buffer = (*turn)++ % g->nbuffers;

		rc = zero_gather_finish(z, last_of_buffer[buffer] + 1);
		last_of_buffer[buffer] = g->started;
		g->buffer_of[g->started] = buffer;
		if (rc == 0)
			rc = gather_partial(z, b, g->buffers[buffer]);
	}
	if (rc == 0)
		rc = zero_mark_set(z, &g->marks[g->started], z->queue);
	if (rc == 0)
		g->started++;
	return rc;
}

static int update_bucket(struct kolo_zero *z, const struct zero_bucket *b,
			 zero_update_piece_fn *update, void *arg)
{
	int rc = 0;

	for (int p = b->first; rc == 0 && p < b->first + b->npieces; p++)
		rc = update(z, &z->gatherer.plan.pieces[p], arg);
	return rc;
}

/* A bucket is gathered after its uploads. The next bucket is updated meanwhile. */
int zero_gather_updated(struct kolo_zero *z, zero_update_piece_fn *update, void *arg)
{
	struct zero_gatherer *g = &z->gatherer;
	int rc = zero_gather_finish_all(z), turn = 0, last_of_buffer[2] = { -1, -1 };
	int lag = z->device && z->noffloaded ? 1 : 0;

	g->started = g->finished = 0;
	for (int b = 0; rc == 0 && b < g->plan.nbuckets + lag; b++) {
		uint64_t upload = z->last_upload;

		if (b < g->plan.nbuckets)
			rc = update_bucket(z, &g->plan.buckets[b], update, arg);
		if (b < lag)
			continue;
		if (rc == 0 && lag)
			rc = zero_upload_wait(z, upload);
		if (rc == 0)
			rc = start_gather(z, &turn, last_of_buffer);
	}
	return rc == 0 && !z->queue ? zero_gather_finish_all(z) : rc;
}
