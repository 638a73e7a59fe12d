/* One table of the tensors of several engines. */
#ifndef ZERO_CHECKPOINT_JOIN_H
#define ZERO_CHECKPOINT_JOIN_H

struct kolo_zero;
struct zero_table;

/* Adds to the engine's own table (zero_table_make) what the other engines of config.world have, in
 * the order of their ranks. Of several engines with the same part of a tensor one writes it.
 * Without config.world nothing changes. Collective over all engines.
 *
 * Errors, on all ranks: those of the collectives, KOLO_ENOMEM, KOLO_EMISMATCH (tensors that do not
 * fit together), KOLO_EINVAL (a part is missing). */
int zero_table_join(struct kolo_zero *zero, struct zero_table *table);

#endif
