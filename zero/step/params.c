/* Parameters of stage 3 (kolo_zero_use, kolo_zero_release): gathered for use, dropped after it, and
 * gathered ahead of use in the order of the last micro-step. */
#include "zero/step/params.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/guard.h"
#include "zero/core/tensor.h"
#include "zero/offload/compute.h"
#include "zero/offload/regions.h"
#include "zero/offload/shards.h"
#include "zero/step/gather.h"

#include <stdlib.h>

/* ---- One tensor ------------------------------------------------------------------------------ */

/* Takes memory for a tensor. If this rank's shard is offloaded, its upload starts. */
static int start_upload(struct kolo_zero *z, int tensor)
{
	int rc = zero_gathered_open(z, &z->tensors[tensor]);

	return rc == 0 ? zero_shard_upload(z, tensor) : rc;
}

static int start_gather(struct kolo_zero *z, int tensor)
{
	struct zero_tensor *t = &z->tensors[tensor];
	int rc = t->state == ZERO_GONE ? start_upload(z, tensor) : 0;
	const char *own;

	/* The upload was started just now, or by an update. */
	if (rc == 0)
		rc = zero_upload_wait(z, t->upload);
	if (rc < 0)
		return rc;
	t->state = ZERO_GATHERING;
	if (z->dry) {
		zero_count_whole(z, t);
		return 0;
	}
	own = t->shard_place == ZERO_ON_DEVICE ? t->shard
					       : zero_at(t->param, t->type, t->own.first);
	rc = zero_gather_whole(z, t, own, z->queue);
	if (rc == 0)
		rc = zero_mark_set(z, &t->gathered, z->queue);
	return rc;
}

static int finish_gather(struct kolo_zero *z, struct zero_tensor *t)
{
	double began = zero_now();
	int rc = z->dry ? 0 : zero_mark_wait(z, &t->gathered);

	z->times.gather += zero_now() - began;
	if (rc == 0)
		t->state = ZERO_HERE;
	return rc;
}

/* ---- The order of uses ----------------------------------------------------------------------- */

/* Mixes a use or a release into the hash that ranks compare. Uses and releases decide what is
 * gathered, so they must be the same on all ranks. */
static void mix_into_hash(struct kolo_zero *z, int event)
{
	z->trace.hash = zero_hash(z->trace.hash, &event, sizeof(event));
}

static int append_use(struct kolo_zero *z, int tensor)
{
	struct zero_trace *trace = &z->trace;

	if (trace->n == trace->room) {
		int room = trace->room ? 2 * trace->room : 64;
		int *more = realloc(trace->tensors, (size_t)room * sizeof(*more));

		if (!more)
			return kolo_error_set(KOLO_ENOMEM,
					      "rank %d: the order of %d uses: out of memory",
					      z->rank, room);
		trace->tensors = more;
		trace->room = room;
	}
	trace->tensors[trace->n++] = tensor;
	return 0;
}

/* Notes a use. If it is not the one that was expected, the order is learnt again from here. */
static int trace_use(struct kolo_zero *z, int tensor)
{
	struct zero_trace *trace = &z->trace;
	int rc = 0;

	if (trace->matches && (trace->at >= trace->n || trace->tensors[trace->at] != tensor)) {
		trace->matches = false;
		trace->n = trace->at;
	}
	if (!trace->matches)
		rc = append_use(z, tensor);
	trace->at++;
	return rc;
}

/* Drops what was gathered or uploaded ahead and then not used. */
static int drop_ahead(struct kolo_zero *z)
{
	int rc = 0;

	for (int i = 0; rc == 0 && i < z->ntensors && (z->trace.ahead || z->trace.uploading); i++) {
		struct zero_tensor *t = &z->tensors[i];

		if (t->state == ZERO_UPLOADING) {
			rc = zero_upload_wait(z, t->upload);
			z->trace.uploading -= t->n;
			zero_gathered_close(z, t);
		}
		if (!t->ahead)
			continue;
		rc = finish_gather(z, t);
		zero_gathered_close(z, t);
		t->ahead = false;
		z->trace.ahead -= t->n;
	}
	return rc;
}

int zero_trace_end(struct kolo_zero *z)
{
	struct zero_trace *trace = &z->trace;

	/* Uses that were not reached are forgotten: the order of this micro-step counts. */
	trace->n = trace->at;
	trace->matches = trace->n > 0;
	trace->at = 0;
	return drop_ahead(z);
}

/* Gathers the tensors that come next, at least one, up to the limits. *next becomes the first use
 * after these. All ranks gather the same tensors, because their uses and releases are the same. */
static int gather_ahead(struct kolo_zero *z, int *next)
{
	struct zero_trace *trace = &z->trace;
	int rc = 0, i;

	for (i = trace->at; rc == 0 && trace->matches && i < trace->n; i++) {
		struct zero_tensor *t = &z->tensors[trace->tensors[i]];
		bool uploading = t->state == ZERO_UPLOADING;

		if (t->state != ZERO_GONE && !uploading)
			continue;
		if ((trace->ahead && trace->ahead + t->n > z->config.prefetch) ||
		    z->config.prefetch == 0 ||
		    trace->live + (uploading ? 0 : t->n) > z->config.max_live)
			break;
		trace->uploading -= uploading ? t->n : 0;
		trace->ahead += t->n;
		t->ahead = true;
		rc = start_gather(z, trace->tensors[i]);
	}
	*next = i;
	return rc;
}

/* If shards are offloaded, uploads those that come after what is gathered ahead, up to the same
 * limits. Then it starts to read the shards after these. */
static int upload_ahead(struct kolo_zero *z, int next)
{
	struct zero_trace *trace = &z->trace;
	int rc = 0, i;

	if (z->config.offload_param.place == KOLO_ZERO_ON_DEVICE || !trace->matches ||
	    z->config.prefetch == 0)
		return 0;
	for (i = next; rc == 0 && i < trace->n; i++) {
		struct zero_tensor *t = &z->tensors[trace->tensors[i]];

		if (t->state != ZERO_GONE)
			continue;
		if ((trace->uploading && trace->uploading + t->n > z->config.prefetch) ||
		    trace->live + t->n > z->config.max_live)
			break;
		trace->uploading += t->n;
		rc = start_upload(z, trace->tensors[i]);
	}
	for (int asked = 0; rc == 0 && asked < z->param_buffers.n && i < trace->n; i++, asked++)
		if (z->tensors[trace->tensors[i]].state == ZERO_GONE)
			rc = zero_param_prefetch(z, trace->tensors[i]);
	return rc;
}

/* Whether a released tensor is used again soon: before so many other elements that dropping it
 * would pay. */
static bool is_used_soon(const struct kolo_zero *z, int tensor)
{
	const struct zero_trace *trace = &z->trace;
	size_t between = 0;

	if (!trace->matches || z->phase == ZERO_IDLE || z->config.reuse_distance == 0 ||
	    trace->live > z->config.max_live)
		return false;
	for (int i = trace->at; i < trace->n; i++) {
		if (trace->tensors[i] == tensor)
			return true;
		between += z->tensors[trace->tensors[i]].n;
		if (between > z->config.reuse_distance)
			return false;
	}
	return false;
}

/* ---- Public ---------------------------------------------------------------------------------- */

static int use_sharded(struct kolo_zero *z, struct zero_tensor *t, int tensor)
{
	int rc = z->phase == ZERO_IDLE ? 0 : trace_use(z, tensor), next;

	mix_into_hash(z, tensor);
	if (t->state == ZERO_UPLOADING)
		z->trace.uploading -= t->n;
	if (rc == 0 && (t->state == ZERO_GONE || t->state == ZERO_UPLOADING))
		rc = start_gather(z, tensor);
	if (t->ahead) {
		z->trace.ahead -= t->n;
		t->ahead = false;
	}
	/* These start before this tensor is waited for, so the queue has work meanwhile. */
	if (rc == 0 && z->config.overlap && z->phase != ZERO_IDLE)
		rc = gather_ahead(z, &next);
	if (rc == 0 && z->config.overlap && z->phase != ZERO_IDLE)
		rc = upload_ahead(z, next);
	if (rc == 0 && t->state == ZERO_GATHERING)
		rc = finish_gather(z, t);
	return rc;
}

int kolo_zero_use(struct kolo_zero *z, int tensor, const void **out)
{
	struct zero_tensor *t;
	int rc = zero_check(z);

	if (rc < 0 || !(t = zero_tensor_get(z, tensor, "use")))
		return rc < 0 ? rc : KOLO_EINVAL;
	rc = t->sharded ? use_sharded(z, t, tensor) : zero_gather_finish(z, t->last_gather);
	if (rc < 0)
		return zero_failed_at(z, rc, tensor);
	t->used = true;
	if (t->sharded && t->uses == 0) {
		z->used += t->region.len;
		z->most_used = zero_max(z->most_used, z->used);
	}
	t->uses++;
	if (out)
		*out = t->param;
	return 0;
}

int kolo_zero_release(struct kolo_zero *z, int tensor)
{
	struct zero_tensor *t;
	int rc = zero_check(z);

	if (rc < 0 || !(t = zero_tensor_get(z, tensor, "release")))
		return rc < 0 ? rc : KOLO_EINVAL;
	if (t->uses == 0)
		return zero_misuse(z, "release of tensor '%s', which is not in use", t->name);
	t->uses--;
	if (!t->sharded || t->uses > 0)
		return 0;
	z->used -= t->region.len;
	mix_into_hash(z, ~tensor);
	if (!is_used_soon(z, tensor))
		zero_gathered_close(z, t);
	return 0;
}

void zero_params_drop(struct kolo_zero *z)
{
	for (int i = 0; i < z->ntensors; i++) {
		struct zero_tensor *t = &z->tensors[i];
		if (t->state != ZERO_GONE)
			zero_gathered_close(z, t);
	}
}
