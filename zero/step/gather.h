/* Gathers of parameters: one whole tensor where it lies, or what was updated, bucket by bucket. */
#ifndef ZERO_STEP_GATHER_H
#define ZERO_STEP_GATHER_H

struct kolo_queue;
struct kolo_zero;
struct zero_bucket;
struct zero_piece;
struct zero_tensor;

/* Buffers, events and counts for the plan of gathers. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int zero_gatherer_open(struct kolo_zero *zero);
void zero_gatherer_close(struct kolo_zero *zero);

/* Gathers a tensor's chunks where it lies. src: this rank's chunk; NULL: it is in its place. queue:
 * as in kolo.h. */
int zero_gather_whole(struct kolo_zero *zero, struct zero_tensor *t, const void *src,
		      struct kolo_queue *queue);

/* Updates own chunks bucket by bucket, by calling `update` for each piece, and starts to gather
 * each bucket after its update. */
typedef int zero_update_piece_fn(struct kolo_zero *zero, const struct zero_piece *piece, void *arg);
int zero_gather_updated(struct kolo_zero *zero, zero_update_piece_fn *update, void *arg);

/* Waits until so many buckets of the last update are gathered, or all. */
int zero_gather_finish(struct kolo_zero *zero, int nbuckets);
int zero_gather_finish_all(struct kolo_zero *zero);

/* Counts the gather of a bucket, or of a whole tensor. */
void zero_count_gather(struct kolo_zero *zero, const struct zero_bucket *bucket);
void zero_count_whole(struct kolo_zero *zero, const struct zero_tensor *t);

#endif
