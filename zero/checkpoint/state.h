/* The state file: a text that describes the files of tensors, and holds what is not in tensors. */
#ifndef ZERO_CHECKPOINT_STATE_H
#define ZERO_CHECKPOINT_STATE_H

#include <stddef.h>

struct zero_saved;
struct zero_table;

/* Writes the text of a state file, which the caller frees, and reads it. Errors: KOLO_ENOMEM;
 * KOLO_ESYS, with `path`, if the text is of another kind or damaged. */
int zero_state_write(const struct zero_saved *state, const struct zero_table *tables, char **out,
		     size_t *len);
int zero_state_read(const char *text, size_t len, const char *path, struct zero_saved *state,
		    struct zero_table *tables);

#endif
