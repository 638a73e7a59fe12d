/* The header of a safetensors file. */
#ifndef ZERO_CHECKPOINT_SAFETENSORS_H
#define ZERO_CHECKPOINT_SAFETENSORS_H

struct zero_table;

/* The header of a file with this table, in memory that the caller frees; sets header_len and
 * header_sum. */
int zero_safetensors_header(struct zero_table *table, long step, char **out);

#endif
