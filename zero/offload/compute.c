/* Work on device memory (zero_compute), and copies to and from it (zero_download, zero_upload).
 * Without a device the host's threads do the work, and copies are done at once. */
#include "zero/offload/compute.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/optim/work.h"

#include <string.h>

/* ---- Work ------------------------------------------------------------------------------------ */

int zero_compute(struct kolo_zero *z, const struct kolo_zero_work *work)
{
	if (work->n == 0)
		return 0;
	if (!z->on_host)
		return z->device->ops->work(z->device, work, &z->computed);
	zero_work_run(z->threads, z->kernels, work);
	return 0;
}

int zero_compute_wait(struct kolo_zero *z)
{
	return z->on_host ? 0 : z->device->ops->wait(z->device, KOLO_ZERO_COMPUTE, z->computed);
}

int zero_compute_copy(struct kolo_zero *z, const void *from, enum kolo_type type, void *to,
		      size_t n)
{
	struct kolo_zero_work work = {
		.kind = KOLO_ZERO_WORK_CAST,
		.n = n,
		.from = from,
		.from_type = type,
		.to = to,
		.to_type = type,
		.factor = 1,
	};

	return zero_compute(z, &work);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static int copy(struct kolo_zero *z, enum kolo_zero_lane lane, void *to, const void *from,
		size_t bytes, uint64_t *ticket)
{
	if (bytes == 0 || z->dry)
		return 0;
	if (z->device)
		return z->device->ops->copy(z->device, lane, to, from, bytes, ticket);
	memcpy(to, from, bytes);
	return 0;
}

static int wait(struct kolo_zero *z, enum kolo_zero_lane lane, uint64_t ticket)
{
	double began = zero_now();
	int rc = z->device && ticket && !z->dry ? z->device->ops->wait(z->device, lane, ticket) : 0;

	z->times.transfer += zero_now() - began;
	return rc;
}

int zero_download(struct kolo_zero *z, void *host, const void *device, size_t bytes,
		  uint64_t *ticket)
{
	int rc = copy(z, KOLO_ZERO_DOWN, host, device, bytes, ticket);

	if (rc == 0 && z->device && bytes) {
		z->last_download = *ticket;
		z->down_bytes += bytes;
	}
	return rc;
}

int zero_upload(struct kolo_zero *z, void *device, const void *host, size_t bytes, uint64_t *ticket)
{
	int rc = copy(z, KOLO_ZERO_UP, device, host, bytes, ticket);

	if (rc == 0 && z->device && bytes) {
		z->last_upload = *ticket;
		z->up_bytes += bytes;
	}
	return rc;
}

int zero_download_wait(struct kolo_zero *z, uint64_t ticket)
{
	int rc = wait(z, KOLO_ZERO_DOWN, ticket);

	if (rc == 0 && ticket > z->downloaded)
		z->downloaded = ticket;
	return rc;
}

int zero_upload_wait(struct kolo_zero *z, uint64_t ticket)
{
	return wait(z, KOLO_ZERO_UP, ticket);
}

/* Copies outside of the order of lanes: nobody else uses these bytes meanwhile. */
static int copy_now(struct kolo_zero *z, enum kolo_zero_lane lane, void *to, const void *from,
		    size_t bytes)
{
	uint64_t ticket = 0;
	int rc;

	if (bytes == 0)
		return 0;
	if (z->on_host) {
		memcpy(to, from, bytes);
		return 0;
	}
	rc = copy(z, lane, to, from, bytes, &ticket);
	return rc == 0 ? wait(z, lane, ticket) : rc;
}

int zero_download_now(struct kolo_zero *z, void *host, const void *device, size_t bytes)
{
	return copy_now(z, KOLO_ZERO_DOWN, host, device, bytes);
}

int zero_upload_now(struct kolo_zero *z, void *device, const void *host, size_t bytes)
{
	return copy_now(z, KOLO_ZERO_UP, device, host, bytes);
}

int zero_staging_take(struct kolo_zero *z, struct zero_staging *s, bool up, char **out,
		      uint64_t **ticket)
{
	int i = s->turn;

	s->turn = (i + 1) % s->n;
	*out = s->memory + (size_t)i * s->len;
	*ticket = &s->tickets[i];
	return up ? zero_upload_wait(z, s->tickets[i]) : zero_download_wait(z, s->tickets[i]);
}

/* ---- Marks ----------------------------------------------------------------------------------- */

int zero_mark_open(struct kolo_zero *z, struct zero_mark *mark)
{
	return z->queue && z->on_host ? kolo_event_create(&mark->event) : 0;
}

void zero_mark_close(struct zero_mark *mark)
{
	kolo_event_destroy(mark->event);
	*mark = (struct zero_mark){ 0 };
}

int zero_mark_set(struct kolo_zero *z, struct zero_mark *mark, struct kolo_queue *queue)
{
	struct kolo_zero_work work = {
		.kind = KOLO_ZERO_WORK_CLEAR, .n = 1, .to = z->spot, .to_type = KOLO_F32
	};
	int rc;

	if (!queue)
		return 0;
	if (z->on_host)
		return kolo_event_record(mark->event, queue);
	rc = zero_compute(z, &work);
	mark->ticket = z->computed;
	return rc;
}

bool zero_mark_passed(struct kolo_zero *z, struct zero_mark *mark)
{
	int done = 0;

	return z->queue && z->on_host && kolo_event_query(mark->event, &done) == 0 && done;
}

/* A wait on a device's lane does not report how a collective ended. So the communicator is asked
 * after it. */
int zero_mark_wait(struct kolo_zero *z, struct zero_mark *mark)
{
	int rc;

	if (!z->queue)
		return 0;
	if (z->on_host)
		return kolo_event_wait(mark->event);
	rc = z->device->ops->wait(z->device, KOLO_ZERO_COMPUTE, mark->ticket);
	return rc == 0 ? kolo_comm_status(z->data) : rc;
}

/* ---- Collectives that are waited for --------------------------------------------------------- */

/* Host memory needs no queue. */
struct kolo_queue *zero_queue_now(struct kolo_zero *z)
{
	return z->on_host ? NULL : z->queue;
}

int zero_queue_done(struct kolo_zero *z, int rc)
{
	return rc == 0 && !z->on_host ? kolo_queue_wait(z->queue) : rc;
}
