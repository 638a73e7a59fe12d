/* Gradients on their way: into buckets, over the ranks, and to where they are kept.
 * kolo_zero_gradient is here. */
#ifndef ZERO_STEP_GRADIENTS_H
#define ZERO_STEP_GRADIENTS_H

#include <stdbool.h>

struct kolo_zero;
struct zero_bucket;

/* Buffers, events and counts for the plan of reductions. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int zero_reducer_open(struct kolo_zero *zero);
void zero_reducer_close(struct kolo_zero *zero);

/* A new micro-step. */
void zero_reducer_begin(struct kolo_zero *zero);

/* Its backward part begins, if it has not begun. */
void zero_begin_backward(struct kolo_zero *zero);

/* Whether ranks reduce in this micro-step: at stages 0 and 1 only in the last one of an update. */
bool zero_reduces_now(const struct kolo_zero *zero);

/* Fills what is missing with zeros or earlier sums. Waits until all is reduced and stored. */
int zero_reducer_finish(struct kolo_zero *zero);

/* Counts the reduction of a bucket. */
void zero_count_reduction(struct kolo_zero *zero, const struct zero_bucket *bucket);

#endif
