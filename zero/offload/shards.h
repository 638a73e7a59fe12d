/* Values of tensors, wherever they are; offloaded shards, on their way to where they are gathered
 * and back. */
#ifndef ZERO_OFFLOAD_SHARDS_H
#define ZERO_OFFLOAD_SHARDS_H

#include "zero/core/layout.h"

struct kolo_zero;

/* Copies elements of a tensor's values to the host, and from it; of a sharded tensor elements of
 * its own part. Between updates. */
int zero_values_get(struct kolo_zero *zero, int tensor, struct zero_part part, void *out);
int zero_values_put(struct kolo_zero *zero, int tensor, struct zero_part part, const void *from);

/* The file and the buffers of shards. Errors: KOLO_ESYS, KOLO_ENOMEM, KOLO_ENOTSUP. */
int zero_param_buffers_open(struct kolo_zero *zero);
void zero_param_buffers_close(struct kolo_zero *zero);

/* Forgets shards that were read ahead, since they are about to change. Waits for reads and
 * writes. */
int zero_param_buffers_forget(struct kolo_zero *zero);

/* Starts to read a tensor's shard, if it is in a file and a buffer is free. */
int zero_param_prefetch(struct kolo_zero *zero, int tensor);

/* Starts to upload an offloaded shard to its place among the gathered values. */
int zero_shard_upload(struct kolo_zero *zero, int tensor);

/* Before and after an update of a tensor. Between them `shard` of an offloaded one is memory of the
 * host. */
int zero_shard_begin(struct kolo_zero *zero, int tensor);
int zero_shard_end(struct kolo_zero *zero, int tensor);

#endif
