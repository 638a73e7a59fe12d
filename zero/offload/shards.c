/* Offloaded shards on their way to the device and back (zero_shard_upload, zero_shard_begin,
 * zero_shard_end). A shard in a file is read into one of the param buffers and uploaded from it.
 * After an update it is written from one. */
#include "zero/offload/shards.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/tensor.h"
#include "zero/offload/compute.h"
#include "zero/offload/disk.h"
#include "zero/offload/disk_bytes.h"

#include <string.h>

/* ---- Values ---------------------------------------------------------------------------------- */

static char *param_buffer(const struct zero_param_buffers *s, int i)
{
	return s->buffers + (size_t)i * s->len;
}

static uint64_t file_offset(const struct zero_tensor *t, size_t first)
{
	return t->shard_offset + (first - t->own.first) * kolo_type_size(t->type);
}

/* Copies a shard in a file to the host, or from it, through a buffer with no copy under way. */
static int move_file(struct kolo_zero *z, const struct zero_tensor *t, struct zero_part part,
		     void *out, const void *from)
{
	struct zero_param_buffers *s = &z->param_buffers;
	uint64_t offset = file_offset(t, part.first);
	size_t bytes = part.n * kolo_type_size(t->type);
	int rc = zero_param_buffers_forget(z);

	if (rc < 0)
		return rc;
	return out ? zero_disk_get(s->disk, s->buffers, s->len, offset, out, bytes)
		   : zero_disk_put(s->disk, s->buffers, s->len, offset, from, bytes);
}

int zero_values_get(struct kolo_zero *z, int tensor, struct zero_part part, void *out)
{
	const struct zero_tensor *t = &z->tensors[tensor];
	size_t bytes = part.n * kolo_type_size(t->type);

	if (!t->sharded)
		return zero_download_now(z, out, zero_at(t->param, t->type, part.first), bytes);
	if (t->shard_place == ZERO_ON_DEVICE)
		return zero_download_now(
			z, out, zero_at(t->shard, t->type, part.first - t->own.first), bytes);
	if (t->shard_place == ZERO_IN_FILES)
		return move_file(z, t, part, out, NULL);
	memcpy(out, zero_at(t->shard, t->type, part.first - t->own.first), bytes);
	return 0;
}

int zero_values_put(struct kolo_zero *z, int tensor, struct zero_part part, const void *from)
{
	const struct zero_tensor *t = &z->tensors[tensor];
	size_t bytes = part.n * kolo_type_size(t->type);

	if (!t->sharded)
		return zero_upload_now(z, zero_at(t->param, t->type, part.first), from, bytes);
	if (t->shard_place == ZERO_ON_DEVICE)
		return zero_upload_now(z, zero_at(t->shard, t->type, part.first - t->own.first),
				       from, bytes);
	if (t->shard_place == ZERO_IN_FILES)
		return move_file(z, t, part, NULL, from);
	memcpy(zero_at(t->shard, t->type, part.first - t->own.first), from, bytes);
	return 0;
}

/* ---- Shards in files ------------------------------------------------------------------------- */

int zero_param_buffers_open(struct kolo_zero *z)
{
	struct zero_param_buffers *s = &z->param_buffers;
	struct zero_disk_attr attr = {
		.dir = z->config.offload_param.path,
		.what = "parameters",
		.rank = z->rank,
		.bytes = z->arenas[ZERO_IN_FILES][ZERO_PARAMETERS].used,
		.nbuffers = s->n,
		.buffer_len = s->len,
		.block = z->config.io_block,
		.depth = z->config.io_depth,
	};

	if (attr.bytes == 0)
		return 0;
	s->buffers = zero_arena_take(&z->arenas[ZERO_ON_HOST][ZERO_PARAM_BUFFERS],
				     (size_t)s->n * s->len);
	attr.buffers = s->buffers;
	return zero_disk_open(&attr, &s->disk);
}

void zero_param_buffers_close(struct kolo_zero *z)
{
	zero_disk_close(z->param_buffers.disk);
}

/* The buffer whose entry in zero_param_buffers.tensor is `tensor`; -1: none. */
static int find_buffer(const struct zero_param_buffers *s, int tensor)
{
	for (int i = 0; i < s->n; i++)
		if (s->tensor[i] == tensor)
			return i;
	return -1;
}

/* The entry of a buffer from which a tensor's shard is being written. */
static int written(int tensor)
{
	return -2 - tensor;
}

/* Waits until what was written of a tensor's shard is in the file. */
static int finish_write(struct kolo_zero *z, int tensor)
{
	int i = find_buffer(&z->param_buffers, written(tensor));

	return i < 0 ? 0 : zero_disk_wait(z->param_buffers.disk, i);
}

/* Takes the next buffer in turn, after its copies are done. */
static int take_buffer(struct kolo_zero *z, int *out)
{
	struct zero_param_buffers *s = &z->param_buffers;
	double began = zero_now();
	int i = s->turn;
	int rc = z->dry ? 0 : zero_disk_wait(s->disk, i);

	z->times.transfer += zero_now() - began;
	s->turn = (i + 1) % s->n;
	s->tensor[i] = -1;
	*out = i;
	return rc == 0 ? zero_upload_wait(z, s->tickets[i]) : rc;
}

static int start_read(struct kolo_zero *z, int tensor, int *out)
{
	const struct zero_tensor *t = &z->tensors[tensor];
	size_t len = zero_whole_pages(t->own.n * kolo_type_size(t->type));
	int rc = take_buffer(z, out);

	if (rc == 0)
		rc = finish_write(z, tensor);
	if (z->dry)
		z->dry_read_bytes += len;
	else if (rc == 0)
		rc = zero_disk_read(z->param_buffers.disk, *out, t->shard_offset, len);
	if (rc == 0)
		z->param_buffers.tensor[*out] = tensor;
	return rc;
}

int zero_param_prefetch(struct kolo_zero *z, int tensor)
{
	struct zero_param_buffers *s = &z->param_buffers;
	int i;

	if (z->tensors[tensor].shard_place != ZERO_IN_FILES || z->tensors[tensor].own.n == 0 ||
	    find_buffer(s, tensor) >= 0 || s->tensor[s->turn] >= 0)
		return 0;
	return start_read(z, tensor, &i);
}

int zero_param_buffers_forget(struct kolo_zero *z)
{
	struct zero_param_buffers *s = &z->param_buffers;
	int rc = s->disk ? zero_disk_check(s->disk) : 0;

	for (int i = 0; rc == 0 && i < s->n; i++) {
		rc = s->disk ? zero_disk_wait(s->disk, i) : 0;
		s->tensor[i] = -1;
	}
	return rc;
}

/* ---- Uploads --------------------------------------------------------------------------------- */

static int upload_from_file(struct kolo_zero *z, int tensor, char *to, size_t bytes)
{
	struct zero_param_buffers *s = &z->param_buffers;
	struct zero_tensor *t = &z->tensors[tensor];
	int i = find_buffer(s, tensor), rc = i < 0 ? start_read(z, tensor, &i) : 0;
	double began = zero_now();

	if (rc == 0 && !z->dry)
		rc = zero_disk_wait(s->disk, i);
	z->times.transfer += zero_now() - began;
	if (rc == 0)
		rc = zero_upload(z, to, z->dry ? NULL : param_buffer(s, i), bytes, &s->tickets[i]);
	if (rc == 0)
		t->upload = s->tickets[i];
	if (i >= 0)
		s->tensor[i] = -1;
	return rc;
}

int zero_shard_upload(struct kolo_zero *z, int tensor)
{
	struct zero_tensor *t = &z->tensors[tensor];
	size_t bytes = t->own.n * kolo_type_size(t->type);
	char *to = z->dry ? NULL : zero_at(t->param, t->type, t->own.first);

	if (bytes == 0 || t->shard_place == ZERO_ON_DEVICE)
		return 0;
	if (t->shard_place == ZERO_IN_FILES)
		return upload_from_file(z, tensor, to, bytes);
	return zero_upload(z, to, t->shard, bytes, &t->upload);
}

/* ---- Updated --------------------------------------------------------------------------------- */

int zero_shard_begin(struct kolo_zero *z, int tensor)
{
	struct zero_tensor *t = &z->tensors[tensor];
	int i, rc;

	if (!t->sharded || t->shard_place != ZERO_IN_FILES || t->own.n == 0)
		return 0;
	rc = take_buffer(z, &i);
	if (rc == 0)
		t->shard = param_buffer(&z->param_buffers, i);
	return rc;
}

int zero_shard_end(struct kolo_zero *z, int tensor)
{
	struct zero_tensor *t = &z->tensors[tensor];
	struct zero_param_buffers *s = &z->param_buffers;
	int i, rc;

	if (!t->sharded || t->shard_place == ZERO_ON_DEVICE || t->own.n == 0)
		return 0;
	/* Updated values must be downloaded. */
	rc = zero_download_wait(z, z->last_download);
	if (t->shard_place != ZERO_IN_FILES)
		return rc;
	i = (int)((size_t)(t->shard - s->buffers) / s->len);
	if (rc == 0)
		rc = zero_disk_write(s->disk, i, t->shard_offset,
				     zero_whole_pages(t->own.n * kolo_type_size(t->type)));
	s->tensor[i] = written(tensor);
	t->shard = NULL;
	return rc;
}
