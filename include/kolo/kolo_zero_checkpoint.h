/* Kolo: checkpoints of the engine of kolo_zero.h, and its weights as safetensors.
 *
 * A checkpoint is a directory, dir/step-000000123, with
 *
 *     weights.safetensors     trained tensors as float (master weights),
 *                             frozen tensors in their own type
 *     moment1.safetensors     the optimizer's first moments as float, if any
 *     moment2.safetensors     the optimizer's second moments as float, if any
 *     user                    the caller's own bytes
 *     state                   text: step counts, loss scale, learning rates,
 *                             places and checksums of all parts
 *
 * Tensors are whole and have no padding, and nothing tells how many ranks or which stage wrote them; so any number of ranks
 * at any stage loads them. All ranks write their own parts into the same files at once. The directory has another name until
 * everything is on the disk: one that is called step-... is complete, whatever happened to who wrote it.
 *
 * All calls are collective and blocking, between updates, and need a directory that all ranks see. When one rank fails all
 * do, with that rank's reason. */
#ifndef KOLO_KOLO_ZERO_CHECKPOINT_H
#define KOLO_KOLO_ZERO_CHECKPOINT_H

#include "kolo_zero.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Writes a checkpoint named after the number of updates into `dir`, which is made where it is missing; one of the same name is
 * replaced, and later ones, behind which training has gone back, are renamed to later-step-..., which nothing here looks at. Of
 * the others the newest `keep` stay; 0: all do. Checkpoints that were not completed are removed, so that only one job may
 * write into a directory at a time. user[user_len] of rank 0, which may be NULL and 0, is kept with it: the
 * place in the data, say.
 *
 * Returns when all is on the disk. When it fails nothing that was complete is lost, and the engine is as good as before.
 * Errors: KOLO_EINVAL (in the middle of an update; a tensor's name is no UTF-8), KOLO_ENOMEM, KOLO_ESYS (disk full, ...; names
 * file and rank), those of the collectives. */
int kolo_zero_save(struct kolo_zero *zero, const char *dir, int keep, const void *user, size_t user_len);

/* The step of the newest checkpoint in `dir`; -1 where there is none, or no such directory. Local, any time.
 * Errors: KOLO_EINVAL, KOLO_ESYS. */
int kolo_zero_newest(const char *dir, long *out);

enum kolo_zero_load_what {
	KOLO_ZERO_LOAD_ALL,     /* training goes on as if it had never stopped */
	KOLO_ZERO_LOAD_WEIGHTS, /* the tensors' values alone; optimizer, steps and scale stay as they are */
};

/* Loads a checkpoint: `path` itself, or, where it has none but contains some, the newest in it. The engine's tensors must have
 * the names and shapes of the checkpoint's, in any order; types of weights are converted. Everything is checked against its
 * checksum while it is read. With KOLO_ZERO_LOAD_ALL the optimizer must be the same, and learning rates become those of the
 * checkpoint; kolo_zero_set_lr changes them afterwards. The bits of training go on as if it had not stopped where the
 * number of ranks and the stage (of accumulated gradients: the pair of stages) are the same.
 *
 * *user_len is the room in user, and becomes the length of what rank 0 gave to kolo_zero_save. Both may be NULL, or user
 * alone, to learn the length.
 *
 * Errors: KOLO_EINVAL (another model or optimizer, too little room for user), KOLO_ESYS (no checkpoint, or a damaged one: names
 * the file and the tensor), KOLO_ENOMEM, those of the collectives. Where it fails behind the reading of tensors has begun
 * the engine refuses all but another kolo_zero_load, of an earlier checkpoint say, and kolo_zero_destroy. */
int kolo_zero_load(struct kolo_zero *zero, const char *path, enum kolo_zero_load_what what, void *user,
		   size_t *user_len);

/* Writes the weights of all tensors as one safetensors file: trained ones from their master weights. type is KOLO_F32, F16 or
 * BF16, into which all are converted. The file appears under its name when it is complete, in place of one that was there;
 * what a killed job leaves of it is called path.NUMBER.partial.
 * Errors: as kolo_zero_save. */
int kolo_zero_export(struct kolo_zero *zero, const char *path, enum kolo_type type);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
