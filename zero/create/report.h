/* What the engine takes and sends. The public functions are in kolo_zero.h. */
#ifndef ZERO_CREATE_REPORT_H
#define ZERO_CREATE_REPORT_H

#include <stdint.h>

struct kolo_zero;

/* Bytes of all files that were read and written since the engine was made. */
void zero_files_counts(const struct kolo_zero *zero, uint64_t *read_bytes, uint64_t *written_bytes);

/* Bytes that this rank sent over the communicators of parameters and gradients. */
int zero_count_sent(const struct kolo_zero *zero, uint64_t *out);

#endif
