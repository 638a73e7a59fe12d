/* Home is where the model computes: the device, or the host's memory without one. Work there, and copies from and to it. */
#ifndef ZERO_HOME_H
#define ZERO_HOME_H

#include "kolo/kolo_zero_device.h"

#include <stdbool.h>

struct kolo_zero;
struct zero_mark;
struct zero_staging;

/* ---- Work ----------------------------------------------------------------------------------------------- */

/* Does work at home. On a device of its own the work is done when zero_home_wait has returned. */
int zero_home_work(struct kolo_zero *zero, const struct kolo_zero_work *work);
int zero_home_wait(struct kolo_zero *zero);

/* Copies n elements, from and to home; done when zero_home_wait has returned. */
int zero_home_copy(struct kolo_zero *zero, const void *from, enum kolo_type type, void *to, size_t n);

/* Copies bytes from home to the host, and to home. Done when they return. */
int zero_home_get(struct kolo_zero *zero, void *host, const void *home, size_t bytes);
int zero_home_put(struct kolo_zero *zero, void *home, const void *host, size_t bytes);

/* ---- Copies --------------------------------------------------------------------------------------------- */

/* Starts a copy. zero_wait_down, or zero_wait_up, waits for *ticket. Without a device the copy is done at once. */
int zero_copy_down(struct kolo_zero *zero, void *host, const void *home, size_t bytes, uint64_t *ticket);
int zero_copy_up(struct kolo_zero *zero, void *home, const void *host, size_t bytes, uint64_t *ticket);
int zero_wait_down(struct kolo_zero *zero, uint64_t ticket);
int zero_wait_up(struct kolo_zero *zero, uint64_t ticket);

/* The next buffer of a staging, after the last copy from it is done; *ticket is that of the next copy. */
int zero_staging_take(struct kolo_zero *zero, struct zero_staging *staging, bool up, char **out,
		      uint64_t **ticket);

/* ---- Marks ---------------------------------------------------------------------------------------------- */

/* A mark is a place in the engine's queue. Without overlap there is no queue, and marks do nothing. */
int zero_mark_open(struct kolo_zero *zero, struct zero_mark *mark);
void zero_mark_close(struct zero_mark *mark);

/* Marks what is in the queue now; waits until that is done. */
int zero_mark_set(struct kolo_zero *zero, struct zero_mark *mark);
int zero_mark_wait(struct kolo_zero *zero, struct zero_mark *mark);

/* Whether waiting would not block. false on a device with its own order, which does not know. */
bool zero_mark_passed(struct kolo_zero *zero, struct zero_mark *mark);

/* ---- Collectives that are waited for -------------------------------------------------------------------- */

/* The queue for a collective on memory at home that is waited for at once. NULL for host memory, which needs none. */
struct kolo_queue *zero_queue_now(struct kolo_zero *zero);

/* Waits for the collective that was put into it, if rc is 0. Returns the status. */
int zero_queue_done(struct kolo_zero *zero, int rc);

#endif
