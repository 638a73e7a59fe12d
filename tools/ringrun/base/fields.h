/* A struct as bytes: numbers (int), texts (char *, may be NULL) and lists of texts (char **, ends
 * with NULL), named by their offsets. */
#ifndef TOOLS_RINGRUN_BASE_FIELDS_H
#define TOOLS_RINGRUN_BASE_FIELDS_H

#include "tools/ringrun/base/wire.h"

struct fields {
	const size_t *numbers, *texts, *lists;
	size_t nnumbers, ntexts, nlists;
};

void fields_write(const struct fields *f, const void *from, struct bytes *out);

/* Copies what it reads. */
void fields_read(const struct fields *f, struct reader *r, void *to);

#endif
