/* State that is offloaded: passes over it (zero_offload_walk), and single elements (zero_state_get,
 * zero_state_put).
 *
 * A pass over files reads some blocks of state ahead, has one open, and writes some out. An update
 * visits slices. Their new values are uploaded through staging buffers. */
#include "zero/offload/offload.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/tensor.h"
#include "zero/offload/compute.h"
#include "zero/offload/disk.h"
#include "zero/offload/disk_bytes.h"
#include "zero/optim/optimizer.h"

#include <stdlib.h>
#include <string.h>

/* ---- Blocks: a pass over state in files ------------------------------------------------------ */

static char *block_buffer(const struct zero_state_blocks *u, size_t block)
{
	return u->buffers + block % (size_t)u->nbuffers * u->buffer_len;
}

static int buffer_number(const struct zero_state_blocks *u, size_t block)
{
	return (int)(block % (size_t)u->nbuffers);
}

int zero_offload_begin(struct kolo_zero *z)
{
	z->state_blocks.asked = 0;
	z->state_blocks.at = SIZE_MAX;
	return z->state_blocks.disk ? zero_disk_check(z->state_blocks.disk) : 0;
}

/* Starts to write the open block. */
static int leave_block(struct zero_state_blocks *u)
{
	size_t at = u->at;

	u->at = SIZE_MAX;
	return at == SIZE_MAX ? 0
			      : zero_disk_write(u->disk, buffer_number(u, at),
						at * (uint64_t)u->buffer_len, u->buffer_len);
}

/* Opens a block, and starts to read the blocks after it. Then all buffers are in use, except one
 * that is being written. */
static int open_block(struct kolo_zero *z, size_t block)
{
	struct zero_state_blocks *u = &z->state_blocks;
	double began = zero_now();
	int rc;

	if (u->at == block)
		return 0;
	rc = leave_block(u);
	for (; rc == 0 && u->asked < u->nblocks && u->asked < block + (size_t)u->nbuffers - 1;
	     u->asked++) {
		int i = buffer_number(u, u->asked);

		rc = zero_disk_wait(u->disk, i);
		if (rc == 0)
			rc = zero_disk_read(u->disk, i, u->asked * (uint64_t)u->buffer_len,
					    u->buffer_len);
	}
	if (rc == 0)
		rc = zero_disk_wait(u->disk, buffer_number(u, block));
	u->at = block;
	z->times.transfer += zero_now() - began;
	return rc;
}

int zero_offload_end(struct kolo_zero *z)
{
	struct zero_state_blocks *u = &z->state_blocks;
	double began = zero_now();
	int rc = u->disk ? leave_block(u) : 0;

	for (int i = 0; u->disk && rc == 0 && i < u->nbuffers; i++)
		rc = zero_disk_wait(u->disk, i);
	z->times.transfer += zero_now() - began;
	return rc;
}

/* ---- Slices ---------------------------------------------------------------------------------- */

/* Finds the state of elements in memory, from `first` on. Makes *n smaller if the block ends. */
static int open_slice(struct kolo_zero *z, const struct zero_tensor *t, size_t first, size_t *n,
		      struct zero_slice *out)
{
	size_t at = first - t->held.first, index = t->offloaded.first + at,
	       elements = z->state_blocks.elements, in_block;
	float *floats;
	int moments, rc;

	out->grad = t->offloaded.grad + at * kolo_type_size(t->offloaded.grad_type);
	for (int m = 0; m < 2; m++)
		out->moment[m] = t->offloaded.moment[m] ? t->offloaded.moment[m] + at : NULL;
	out->master = t->offloaded.master ? t->offloaded.master + at : NULL;
	out->part = (struct zero_part){ first, *n };
	if (!z->state_blocks.disk)
		return 0;
	in_block = index % elements;
	*n = out->part.n = zero_min(*n, elements - in_block);
	if ((rc = open_block(z, index / elements)) < 0)
		return rc;
	floats = (float *)(void *)block_buffer(&z->state_blocks, index / elements) + in_block;
	moments = zero_optimizer_moments(z->config.optimizer, &z->config.groups[t->group]);
	out->master = floats;
	for (int m = 0; m < moments; m++)
		out->moment[m] = floats + (size_t)(m + 1) * elements;
	return 0;
}

/* The place where the new values of a slice belong, if the host can write there. NULL: they must be
 * uploaded. */
static char *values_in_reach(const struct kolo_zero *z, const struct zero_tensor *t, size_t first)
{
	bool shard_offloaded = t->sharded && t->shard_place != ZERO_ON_DEVICE;

	return z->device && !shard_offloaded ? NULL : zero_kept_at(t, first);
}

/* Visits one slice. Values that the host can't write are uploaded through a staging buffer. */
static int walk_slice(struct kolo_zero *z, int tensor, struct zero_slice *s, bool update,
		      zero_slice_fn *fn, void *arg)
{
	struct zero_tensor *t = &z->tensors[tensor];
	uint64_t *ticket;
	int rc;

	s->values = update ? values_in_reach(z, t, s->part.first) : NULL;
	if (!update || s->values)
		return fn(z, tensor, s, arg);
	if ((rc = zero_staging_take(z, &z->uploads, true, &s->values, &ticket)) < 0 ||
	    (rc = fn(z, tensor, s, arg)) < 0)
		return rc;
	rc = zero_upload(z, zero_kept_at(t, s->part.first), s->values,
			 s->part.n * kolo_type_size(t->type), ticket);
	t->upload = *ticket;
	return rc;
}

int zero_offload_walk(struct kolo_zero *z, int tensor, struct zero_part part, bool update,
		      zero_slice_fn *fn, void *arg)
{
	int rc = 0;

	for (size_t done = 0, n; rc == 0 && done < part.n; done += n) {
		struct zero_slice slice = { .part = part };

		n = zero_min(part.n - done, z->slice);
		rc = open_slice(z, &z->tensors[tensor], part.first + done, &n, &slice);
		if (rc == 0)
			rc = walk_slice(z, tensor, &slice, update, fn, arg);
	}
	return rc;
}

/* ---- Single elements ------------------------------------------------------------------------- */

/* Copies floats of one kind of state in files. `first` counts all elements that this rank
 * offloads. */
static int move_state(struct kolo_zero *z, size_t first, int state, size_t n, float *out,
		      const float *from)
{
	struct zero_state_blocks *u = &z->state_blocks;
	int rc = 0;

	for (size_t done = 0, k; rc == 0 && done < n; done += k) {
		size_t block = (first + done) / u->elements,
		       in_block = (first + done) % u->elements;
		uint64_t offset = block * (uint64_t)u->buffer_len +
				  ((uint64_t)state * u->elements + in_block) * sizeof(float);

		k = zero_min(n - done, u->elements - in_block);
		if (out)
			rc = zero_disk_get(u->disk, u->buffers, u->buffer_len, offset, out + done,
					   k * sizeof(float));
		else
			rc = zero_disk_put(u->disk, u->buffers, u->buffer_len, offset, from + done,
					   k * sizeof(float));
	}
	return rc;
}

/* State that is offloaded to host memory. */
static float *state_on_host(const struct zero_tensor *t, int state, size_t first)
{
	return (state == 0 ? t->offloaded.master : t->offloaded.moment[state - 1]) +
	       (first - t->held.first);
}

static float *state_on_device(const struct zero_tensor *t, int state, size_t first)
{
	return state == 0 ? zero_master_at(t, first) : zero_moment_at(t, state - 1, first);
}

int zero_state_get(struct kolo_zero *z, const struct zero_tensor *t, int state,
		   struct zero_part part, float *out)
{
	struct zero_part offloaded = zero_part_offloaded(t, part),
			 on_device = zero_part_on_device(t, part);
	int rc = 0;

	if (offloaded.n && z->state_blocks.disk)
		rc = move_state(z, t->offloaded.first + (offloaded.first - t->held.first), state,
				offloaded.n, out, NULL);
	else if (offloaded.n)
		memcpy(out, state_on_host(t, state, offloaded.first), offloaded.n * sizeof(float));
	if (rc == 0 && on_device.n)
		rc = zero_download_now(z, out + (on_device.first - part.first),
				       state_on_device(t, state, on_device.first),
				       on_device.n * sizeof(float));
	return rc;
}

int zero_state_put(struct kolo_zero *z, struct zero_tensor *t, int state, struct zero_part part,
		   const float *from)
{
	struct zero_part offloaded = zero_part_offloaded(t, part),
			 on_device = zero_part_on_device(t, part);
	int rc = 0;

	if (offloaded.n && z->state_blocks.disk)
		rc = move_state(z, t->offloaded.first + (offloaded.first - t->held.first), state,
				offloaded.n, NULL, from);
	else if (offloaded.n)
		memcpy(state_on_host(t, state, offloaded.first), from, offloaded.n * sizeof(float));
	if (rc == 0 && on_device.n)
		rc = zero_upload_now(z, state_on_device(t, state, on_device.first),
				     from + (on_device.first - part.first),
				     on_device.n * sizeof(float));
	return rc;
}

/* ---- Open and close -------------------------------------------------------------------------- */

static int open_staging(struct zero_staging *s, char *memory)
{
	s->memory = memory;
	s->tickets = calloc((size_t)s->n + 1, sizeof(*s->tickets));
	return s->tickets ? 0
			  : kolo_error_set(KOLO_ENOMEM, "%d staging buffers: out of memory", s->n);
}

static int open_state_blocks(struct kolo_zero *z)
{
	struct zero_state_blocks *u = &z->state_blocks;
	struct zero_disk_attr attr = {
		.dir = z->config.offload_optimizer.path,
		.what = "optimizer",
		.rank = z->rank,
		.bytes = u->nblocks * (uint64_t)u->buffer_len,
		.nbuffers = u->nbuffers,
		.buffer_len = u->buffer_len,
		.block = z->config.io_block,
		.depth = z->config.io_depth,
	};

	u->buffers = zero_arena_take(&z->arenas[ZERO_ON_HOST][ZERO_STATE_BLOCKS],
				     (size_t)u->nbuffers * u->buffer_len);
	attr.buffers = u->buffers;
	return zero_disk_open(&attr, &u->disk);
}

int zero_offload_open(struct kolo_zero *z)
{
	struct zero_staging *up = &z->uploads, *down = &z->downloads;
	int rc = open_staging(up, zero_arena_take(&z->arenas[ZERO_ON_HOST][ZERO_STAGING],
						  (size_t)up->n * up->len));

	if (rc == 0)
		rc = open_staging(down, zero_arena_take(&z->arenas[ZERO_ON_DEVICE][ZERO_STAGING],
							(size_t)down->n * down->len));
	return rc == 0 && z->state_blocks.nblocks ? open_state_blocks(z) : rc;
}

void zero_offload_close(struct kolo_zero *z)
{
	zero_disk_close(z->state_blocks.disk);
	free(z->uploads.tickets);
	free(z->downloads.tickets);
}
