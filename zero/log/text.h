/* Lines of the log, in memory. */
#ifndef ZERO_LOG_TEXT_H
#define ZERO_LOG_TEXT_H

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>

/* Bytes of any line: 15 names and numbers of at most 60, and an overflow of 255, six bytes for one
 * if it is escaped. */
enum { ZERO_LINE = 4096 };

struct zero_text {
	size_t len;
	char bytes[ZERO_LINE]; /* with a zero after it; what does not fit is left out */
};

/* Appends the way of printf; for numbers with a point see below. */
void zero_text_put(struct zero_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends six digits; exact: as many as it takes to read the same number. Whole ones have all.
 * `numbers` is a locale with a decimal point, whatever the thread's own is. */
void zero_text_number(struct zero_text *t, locale_t numbers, double value, bool exact);

/* Appends a JSON string. What is no UTF-8 becomes U+FFFD. */
void zero_text_quoted(struct zero_text *t, const char *text);

#endif
