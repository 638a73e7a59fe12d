/* A text that grows as it is written. */
#ifndef ZERO_BASE_GROWING_H
#define ZERO_BASE_GROWING_H

#include <stdbool.h>
#include <stddef.h>

struct zero_growing {
	char *text; /* malloc'ed, with a zero after it; NULL while it is empty */
	size_t len, room;
	bool failed; /* there was no memory for some of it, and nothing is added any more */
};

/* Appends the way of printf. */
void zero_growing_put(struct zero_growing *g, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
