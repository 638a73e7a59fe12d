/* All-gathers of parameters: of one whole tensor where it lies, and of what was updated, bucket by bucket. */
#include "zero.h"

#include <stdlib.h>
#include <string.h>

/* The owners' parts of a tensor, one call each: the same bytes in other operations. */
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

/* What this rank sends of n elements (counts[r] of rank r, or equal parts): all but the next rank's part. */
static void count_gather(struct kolo_zero *z, size_t n, size_t next, size_t real, enum kolo_type type)
{
	z->traffic.gathers++;
	z->traffic.parameter_bytes += (n - next) * kolo_type_size(type);
	z->traffic.padding_bytes +=
		(n - real) * kolo_type_size(type) * (uint64_t)(z->nranks - 1) / (uint64_t)z->nranks;
}

int zero_gather_whole(struct kolo_zero *z, struct zero_tensor *t, const void *src, struct kolo_queue *queue)
{
	size_t *counts = z->gatherer.counts;
	const char *own = zero_at(t->param, t->type, t->own.first);
	bool even = t->chunk * (size_t)z->nranks == t->n;
	struct zero_part next = zero_owned(t->n, z->nranks, (z->rank + 1) % z->nranks);

	for (int r = 0; r < z->nranks; r++)
		counts[r] = zero_owned(t->n, z->nranks, r).n;
	count_gather(z, t->n, next.n, t->n, t->type);
	/* Of a sharded tensor the own part is elsewhere, and read there. */
	if (!z->config.allgather && !src)
		return broadcast_parts(z, t->param, counts, 0, t->type, queue);
	if (even)
		return kolo_all_gather(z->data, src ? src : own, t->param, t->chunk, t->type, queue);
	return kolo_all_gather_v(z->data, src ? src : own, t->param, counts, t->type, queue);
}

/* ---- What was updated ----------------------------------------------------------------------------------- */

int zero_gatherer_open(struct kolo_zero *z)
{
	struct zero_gatherer *g = &z->gatherer;
	int rc = 0;

	g->counts = calloc((size_t)z->nranks, sizeof(*g->counts));
	if (!g->counts)
		return kolo_error_set(KOLO_ENOMEM, "counts of %d ranks: out of memory", z->nranks);
	for (int i = 0; i < g->nbuffers && rc == 0; i++) {
		g->buffers[i].memory = zero_arena_take(&z->arenas[ZERO_BUCKETS], g->buffer_len);
		g->buffers[i].bucket = -1;
		if (z->queue)
			rc = kolo_event_create(&g->buffers[i].event);
	}
	return rc;
}

void zero_gatherer_close(struct kolo_zero *z)
{
	struct zero_gatherer *g = &z->gatherer;

	for (int i = 0; i < g->nbuffers; i++)
		kolo_event_destroy(g->buffers[i].event);
	free(g->counts);
	zero_plan_free(&g->plan);
}

/* Between a bucket and the tensors: this rank's parts into it, or the others' out of it. */
static void copy_parts(struct kolo_zero *z, const struct zero_bucket *b, char *memory, bool in)
{
	size_t size = kolo_type_size(b->type);

	for (int p = b->first; p < b->first + b->npieces; p++) {
		const struct zero_piece *piece = &z->gatherer.plan.pieces[p];
		const struct zero_tensor *t = &z->tensors[piece->tensor];

		for (int r = 0; r < z->nranks; r++) {
			struct zero_part part = zero_part_of(t->n, z->nranks, r, piece->first, piece->n);
			char *here = memory + ((size_t)r * b->n + piece->at) * size;
			char *there = t->param + part.first * size;

			if (in && r == z->rank)
				memcpy(here, there, part.n * size);
			if (!in && r != z->rank)
				memcpy(there, here, part.n * size);
		}
	}
}

/* Waits for the bucket that a buffer has, if any, and takes it out. */
static int empty_buffer(struct kolo_zero *z, struct zero_buffer *buffer)
{
	int rc = 0;

	if (buffer->bucket < 0)
		return 0;
	if (z->queue)
		rc = kolo_event_wait(buffer->event);
	if (rc == 0)
		copy_parts(z, &z->gatherer.plan.buckets[buffer->bucket], buffer->memory, false);
	buffer->bucket = -1;
	return rc;
}

static int gather_partial(struct kolo_zero *z, int bucket, struct zero_buffer *buffer)
{
	const struct zero_bucket *b = &z->gatherer.plan.buckets[bucket];
	char *own = zero_at(buffer->memory, b->type, (size_t)z->rank * b->n);
	size_t all = (size_t)z->nranks * b->n, real = 0;
	int rc = empty_buffer(z, buffer);

	if (rc < 0)
		return rc;
	for (int p = b->first; p < b->first + b->npieces; p++)
		for (int r = 0; r < z->nranks; r++)
			real += zero_part_of(z->tensors[z->gatherer.plan.pieces[p].tensor].n, z->nranks, r,
					     z->gatherer.plan.pieces[p].first, z->gatherer.plan.pieces[p].n)
					.n;
	copy_parts(z, b, buffer->memory, true);
	buffer->bucket = bucket;
	count_gather(z, all, b->n, real, b->type);
	if (z->config.allgather)
		rc = kolo_all_gather(z->data, own, buffer->memory, b->n, b->type, z->queue);
	else
		rc = broadcast_parts(z, buffer->memory, NULL, b->n, b->type, z->queue);
	if (rc == 0 && z->queue)
		rc = kolo_event_record(buffer->event, z->queue);
	return rc;
}

int zero_gather_updated(struct kolo_zero *z, zero_update_piece_fn *update, void *arg)
{
	struct zero_gatherer *g = &z->gatherer;
	int rc = 0;

	for (int i = 0, turn = 0; rc == 0 && i < g->plan.nbuckets; i++) {
		const struct zero_bucket *b = &g->plan.buckets[i];

		for (int p = b->first; rc == 0 && p < b->first + b->npieces; p++)
			rc = update(z, &g->plan.pieces[p], arg);
		if (rc == 0 && b->whole)
			rc = zero_gather_whole(z, &z->tensors[g->plan.pieces[b->first].tensor], NULL,
					       z->queue);
		else if (rc == 0)
			rc = gather_partial(z, i, &g->buffers[turn++ % g->nbuffers]);
	}
	for (int i = 0; i < g->nbuffers; i++)
		rc = rc == 0 ? empty_buffer(z, &g->buffers[i]) : rc;
	return rc == 0 && z->queue ? kolo_queue_wait(z->queue) : rc;
}
