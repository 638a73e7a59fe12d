/* Lines of the log, in memory. */
#ifndef ZERO_LOG_TEXT_H
#define ZERO_LOG_TEXT_H

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>

/* Bytes, enough for any line: 15 names with numbers have at most 60 each. An overflow has at most
 * 255, and each of them may become 6 when it is escaped. */
enum { ZERO_LINE = 4096 };

struct zero_text {
	size_t len;
	char bytes[ZERO_LINE]; /* with a 0 after them; what does not fit is left out */
};

/* Appends as printf does. For numbers with a decimal point use zero_text_number. */
void zero_text_put(struct zero_text *t, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Appends a number with six digits. exact: with as many digits as it takes to read the same number.
 * Whole numbers always have all digits. `numbers` is a locale with a decimal point; the thread's
 * own may have a comma. */
void zero_text_number(struct zero_text *t, locale_t numbers, double value, bool exact);

/* Appends a JSON string. Bytes that are not UTF-8 become U+FFFD. */
void zero_text_quoted(struct zero_text *t, const char *text);

#endif
