/* The text of a config: reading it, blanking its comments, and errors that name a line and a column
 * of it. */
#ifndef ZERO_CONFIG_SOURCE_H
#define ZERO_CONFIG_SOURCE_H

#include <stddef.h>

struct zero_reading;

/* The file as a text that the caller frees. Errors: KOLO_EINVAL, KOLO_ESYS, KOLO_ENOMEM. */
int zero_source_read(const char *path, char **out);
/* Turns the characters of comments into spaces. Errors: KOLO_EINVAL (a comment without end). */
int zero_source_blank(const char *name, char *text);
/* Errors at the key, or at its value, "NAME:LINE:COLUMN: PATH ...". They return KOLO_EINVAL. */
int zero_refuse_key(const struct zero_reading *r, const char *path, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int zero_refuse_value(const struct zero_reading *r, const char *path, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Refuses a key that is given twice. The second one ends `end` bytes after the text's begin. */
int zero_refuse_twice(const struct zero_reading *r, size_t end);
/* Adds a remark. Errors: KOLO_ENOMEM. */
int zero_note(const struct zero_reading *r, const char *path, const char *text);

#endif
