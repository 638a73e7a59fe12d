/* The parameter server: reductions and gathers by send and recv alone, for comparison with a
 * ring. */
#ifndef ZERO_STEP_SERVER_H
#define ZERO_STEP_SERVER_H

struct kolo_zero;
struct zero_bucket;

/* Sends a bucket to rank 0, which adds all of them up in the order of ranks. */
int zero_server_reduce(struct kolo_zero *zero, const struct zero_bucket *bucket, char *memory);

/* Rank 0 sends its parameters to all. */
int zero_server_share(struct kolo_zero *zero);

#endif
