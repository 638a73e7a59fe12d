/* The directory of checkpoints. step-000000123 is complete; a name that begins with a dot is not. A
 * rename makes the one of the other. */
#ifndef ZERO_CHECKPOINT_FOLDERS_H
#define ZERO_CHECKPOINT_FOLDERS_H

#include <stddef.h>
#include <stdint.h>

/* The name of the checkpoint of a step; and what it is called before, by a number that only this
 * save has. */
void zero_checkpoint_name(char *out, size_t len, long step);
void zero_partial_name(char *out, size_t len, long step, uint64_t number);

/* Removes what begins with a dot and was left by saves that did not end. */
int zero_folder_clean(const char *dir);

/* Gives what is complete, at path `partial`, its name, in place of one that had it. Checkpoints of
 * later steps, before which training has gone back, are renamed to later-step-... first. */
int zero_folder_publish(const char *dir, const char *partial, long step);

/* Removes all checkpoints except the newest `keep`, and of those put aside all except as many; 0:
 * removes none. */
int zero_folder_prune(const char *dir, int keep);

/* Removes a path with all that is in it, without following links; what is not there is no error. */
int zero_folder_remove(const char *path);

#endif
