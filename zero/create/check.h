/* What kolo_zero_create is given: right on each rank, and the same on all. */
#ifndef ZERO_CREATE_CHECK_H
#define ZERO_CREATE_CHECK_H

#include "kolo/kolo_zero.h"

/* 0 or KOLO_EINVAL, with what is wrong. Local. */
int zero_check_arguments(const struct kolo_zero_config *config,
			 const struct kolo_zero_tensor *tensors, int ntensors);

/* Of all that a config says, groups included. */
uint64_t zero_hash_config(const struct kolo_zero_config *config);

/* Collective, with `rc` of this rank. If one rank failed all fail, with its text. They also fail if
 * configs or numbers of tensors differ. */
int zero_agree(struct kolo_comm *comm, int rc, int ntensors, const struct kolo_zero_config *config);

/* For zero_agree_tensors: of each tensor, in memory that the caller frees. Errors: KOLO_ENOMEM. */
int zero_hash_tensors(const struct kolo_zero_tensor *tensors, int ntensors, uint64_t **out);

/* Collective: KOLO_EMISMATCH with the first tensor that is not the same on all ranks. */
int zero_agree_tensors(struct kolo_comm *comm, const struct kolo_zero_tensor *tensors, int ntensors,
		       uint64_t *hashes);

#endif
