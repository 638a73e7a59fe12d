/* Work where the model computes, and copies between there and the host. In names "device" is that
 * memory: a device's, or host memory if the config has no device. */
#ifndef ZERO_OFFLOAD_COMPUTE_H
#define ZERO_OFFLOAD_COMPUTE_H

#include "kolo/kolo_zero_device.h"

#include <stdbool.h>

struct kolo_zero;
struct zero_mark;
struct zero_staging;

/* ---- Work ------------------------------------------------------------------------------------ */

/* Does work on device memory. On a device of its own the work is done when zero_compute_wait has
 * returned. */
int zero_compute(struct kolo_zero *zero, const struct kolo_zero_work *work);
int zero_compute_wait(struct kolo_zero *zero);

/* Copies n elements within device memory; done when zero_compute_wait has returned. */
int zero_compute_copy(struct kolo_zero *zero, const void *from, enum kolo_type type, void *to,
		      size_t n);

/* Copies bytes to the host, and from it. Done when they return. */
int zero_download_now(struct kolo_zero *zero, void *host, const void *device, size_t bytes);
int zero_upload_now(struct kolo_zero *zero, void *device, const void *host, size_t bytes);

/* ---- Copies ---------------------------------------------------------------------------------- */

/* Starts a copy to the host, or from it. zero_download_wait, or zero_upload_wait, waits for
 * *ticket. Without a device the copy is done at once. */
int zero_download(struct kolo_zero *zero, void *host, const void *device, size_t bytes,
		  uint64_t *ticket);
int zero_upload(struct kolo_zero *zero, void *device, const void *host, size_t bytes,
		uint64_t *ticket);
int zero_download_wait(struct kolo_zero *zero, uint64_t ticket);
int zero_upload_wait(struct kolo_zero *zero, uint64_t ticket);

/* The next buffer of a staging, after the last copy from it is done; *ticket is that of the next
 * copy. */
int zero_staging_take(struct kolo_zero *zero, struct zero_staging *staging, bool up, char **out,
		      uint64_t **ticket);

/* ---- Marks ----------------------------------------------------------------------------------- */

/* A mark is a place in a queue of the engine's. Without overlap there is no queue, and marks do
 * nothing. */
int zero_mark_open(struct kolo_zero *zero, struct zero_mark *mark);
void zero_mark_close(struct zero_mark *mark);

/* Marks what is in a queue now; waits until that is done. */
int zero_mark_set(struct kolo_zero *zero, struct zero_mark *mark, struct kolo_queue *queue);
int zero_mark_wait(struct kolo_zero *zero, struct zero_mark *mark);

/* Whether waiting would not block. false on a device with its own order, which does not know. */
bool zero_mark_passed(struct kolo_zero *zero, struct zero_mark *mark);

/* ---- Collectives that are waited for --------------------------------------------------------- */

/* The queue for a collective on device memory that is waited for at once. NULL for host memory,
 * which needs none. */
struct kolo_queue *zero_queue_now(struct kolo_zero *zero);

/* Waits for the collective that was put into it, if rc is 0. Returns the status. */
int zero_queue_done(struct kolo_zero *zero, int rc);

#endif
