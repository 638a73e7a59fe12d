/* What the log is made of: lines in memory (log_text.c), and files that they are appended to (log_file.c). */
#ifndef ZERO_LOG_H
#define ZERO_LOG_H

#include "basics.h"

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>

/* Bytes of any line: 15 names and numbers of at most 60, and an overflow of 255, six for one where escaped. */
enum { ZERO_LINE = 4096 };

struct zero_text {
	size_t len;
	char bytes[ZERO_LINE]; /* with a zero behind; what does not fit is left out */
};

/* Appends the way of printf; for numbers with a point see below. */
void zero_text_put(struct zero_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends six digits; exact: as many as it takes to read the same number. Whole ones have all. `numbers` is a locale with a
 * decimal point, whatever the thread's own is. */
void zero_text_number(struct zero_text *t, locale_t numbers, double value, bool exact);

/* Appends a JSON string. What is no UTF-8 becomes U+FFFD. */
void zero_text_quoted(struct zero_text *t, const char *text);

struct zero_log_file {
	char *path;
	int fd;    /* -1: none */
	bool torn; /* a full disk left a part of a line, and it could not be cut off yet */
};

/* Opens the file, or makes it, for appending. `begin` is what a log's file begins with; all of it, if that ends in a newline, is
 * written to one that is empty. A last line that has no end is cut off. To be closed also after an error. Errors: KOLO_EINVAL
 * (it begins with something else), KOLO_ENOMEM, KOLO_ESYS. */
int zero_log_file_open(struct zero_log_file *f, const char *path, const struct zero_text *begin);

/* A line, newline included: all of it, or nothing and KOLO_ESYS, behind which it may be tried again. */
int zero_log_file_append(struct zero_log_file *f, const struct zero_text *line);

void zero_log_file_close(struct zero_log_file *f);

#endif
