/* Kolo ZeRO checkpoints: checkpoints of the engine of kolo_zero.h, and its weights as
 * safetensors.
 *
 * A checkpoint is a directory, like dir/step-000000123, with these files:
 *
 *     weights.safetensors     trained tensors as float (master weights),
 *                             frozen tensors in their own type
 *     moment1.safetensors     the optimizer's first moments as float, if any
 *     moment2.safetensors     the optimizer's second moments as float, if any
 *     user                    the caller's own bytes
 *     state                   text: step counts, loss scale, learning rates,
 *                             places and checksums of all parts
 *
 * Tensors are whole and have no padding. Nothing in the files depends on how many ranks or which
 * stage wrote them, so any number of ranks at any stage loads them. With config.world a checkpoint
 * has the tensors of all engines, put together from their parts (kolo_zero_division). So one engine
 * loads what several have written, and the reverse. All ranks write their own
 * parts into the same files at once. The directory has another name until everything is on the
 * disk. A directory that is called step-... is complete, even if the job that wrote it died.
 *
 * All calls except kolo_zero_newest are collective, over config.world if there is one, and block.
 * They are made between updates and need a directory that all ranks see. If one rank fails all
 * ranks fail, with that rank's reason. */
#ifndef KOLO_KOLO_ZERO_CHECKPOINT_H
#define KOLO_KOLO_ZERO_CHECKPOINT_H

#include "kolo_zero.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Writes a checkpoint into `dir`, named after the number of updates. If `dir` does not exist it
 * is made. A checkpoint of the same name is replaced. Later checkpoints, from before training
 * went back, are renamed to later-step-...; kolo_zero_newest and a load of
 * `dir` do not look at these. Of the others the newest `keep` stay, and of the
 * renamed ones the `keep` that were written last; 0: all stay. Incomplete
 * checkpoints are removed, so only one job may write into a directory at a time.
 *
 * user[user_len] of rank 0 is stored with the checkpoint, for example the place in the data. user
 * may be NULL with user_len 0.
 *
 * Returns when all is on the disk. If it fails, no complete checkpoint is lost, and the engine
 * still works.
 *
 * Errors: those of the collectives, and:
 * - KOLO_EINVAL: in the middle of an update; a tensor's name is not UTF-8; a part of a tensor is in
 *   no engine.
 * - KOLO_EMISMATCH: engines have tensors of one name that do not fit together.
 * - KOLO_ENOMEM: out of memory.
 * - KOLO_ESYS: disk full, for example; names the file and the rank. */
int kolo_zero_save(struct kolo_zero *zero, const char *dir, int keep, const void *user,
		   size_t user_len);

/* Finds the step of the newest checkpoint in `dir`. *out becomes -1 if there is no checkpoint or
 * no such directory. Local; at any time.
 *
 * Errors: KOLO_EINVAL, KOLO_ESYS. */
int kolo_zero_newest(const char *dir, long *out);

/* What kolo_zero_load loads. */
enum kolo_zero_load_what {
	KOLO_ZERO_LOAD_ALL,     /* training continues as if it had never stopped */
	KOLO_ZERO_LOAD_WEIGHTS, /* values of tensors; optimizer, steps and scale do not change */
};

/* Loads a checkpoint. `path` is a checkpoint, or a directory that contains some; then the newest
 * is loaded. The engine's tensors must have the names and shapes of the checkpoint's tensors, in
 * any order. Types of weights are converted. All data are checked against their checksums while
 * they are read.
 *
 * With KOLO_ZERO_LOAD_ALL the optimizer and the number of groups must be the same. Learning rates
 * become those of the checkpoint; kolo_zero_set_lr changes them afterwards. On the same number of
 * ranks training continues with the same bits: at any stage without accumulation, and at a stage
 * of the same pair (0 and 1, or 2 and 3) with it.
 *
 * *user_len is the room in `user`. It becomes the length of what rank 0 gave to kolo_zero_save.
 * Both may be NULL. `user` alone may be NULL to learn the length.
 *
 * If it fails after it has begun to read tensors, the engine refuses all calls except two:
 * kolo_zero_destroy, and another kolo_zero_load, for example of an earlier checkpoint.
 *
 * Errors: those of the collectives, and:
 * - KOLO_EINVAL: another model or optimizer, or too little room for `user`.
 * - KOLO_ESYS: no checkpoint, or a damaged one; names the file and the tensor.
 * - KOLO_ENOMEM: out of memory. */
int kolo_zero_load(struct kolo_zero *zero, const char *path, enum kolo_zero_load_what what,
		   void *user, size_t *user_len);

/* Writes the weights of all tensors as one safetensors file. Trained tensors come from their
 * master weights. All are converted into `type`: KOLO_F32, KOLO_F16 or KOLO_BF16. The file gets
 * its name when it is complete, and replaces a file of that name. A killed job leaves
 * path.NUMBER.partial.
 *
 * Errors: those of kolo_zero_save. */
int kolo_zero_export(struct kolo_zero *zero, const char *path, enum kolo_type type);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
