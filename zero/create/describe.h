/* Describes an engine by arithmetic alone: tensors, what is where, buckets, and how much memory
 * that takes. */
#ifndef ZERO_CREATE_DESCRIBE_H
#define ZERO_CREATE_DESCRIBE_H

#include "zero/base/memory.h"

struct kolo_zero;
struct kolo_zero_config;
struct kolo_zero_tensor;

/* Fills a zeroed engine. Needs no other rank. Makes only lists, which zero_undescribe frees, also
 * after an error. Errors: KOLO_ENOMEM. */
int zero_describe(struct kolo_zero *zero, const struct kolo_zero_config *config,
		  const struct kolo_zero_tensor *tensors, int ntensors, int rank, int nranks);
void zero_undescribe(struct kolo_zero *zero);

/* Gives each tensor its parts of the arenas. Before these are open they are counted. */
void zero_take_memory(struct kolo_zero *zero);

/* Whether host memory of a kind that is offloaded is pinned. */
bool zero_is_pinned(const struct kolo_zero *zero, enum zero_kind kind);

/* Bytes of all buffers of buckets that are planned for. */
size_t zero_bucket_bytes(const struct kolo_zero *zero);

#endif
