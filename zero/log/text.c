/* Makes lines of the log in memory, with numbers and strings that a parser can read
 * (zero_text_number, zero_text_quoted). */
#include "zero/log/text.h"

#include "zero/base/basics.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void zero_text_put(struct zero_text *t, const char *format, ...)
{
	size_t room = sizeof(t->bytes) - t->len;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->bytes + t->len, room, format, args);
	va_end(args);
	t->len += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

void zero_text_number(struct zero_text *t, locale_t numbers, double value, bool exact)
{
	locale_t before = uselocale(numbers);
	size_t begin = t->len;

	if (__builtin_isnan(value)) {
		zero_text_put(t, "nan"); /* printf writes some NaNs as -nan */
	} else if (value > -0x1p53 && value < 0x1p53 && value == (double)(int64_t)value) {
		zero_text_put(t, "%lld", (long long)value);
	} else {
		zero_text_put(t, "%.*g", exact ? 15 : 6, value);
		for (int digits = 16;
		     exact && digits <= 17 && strtod(t->bytes + begin, NULL) != value; digits++) {
			t->len = begin;
			zero_text_put(t, "%.*g", digits, value);
		}
	}
	uselocale(before);
}

void zero_text_quoted(struct zero_text *t, const char *text)
{
	zero_text_put(t, "\"");
	while (*text) {
		size_t n = zero_character_len(text);

		if (n == 0)
			zero_text_put(t, "\\ufffd");
		else if (*text == '"' || *text == '\\')
			zero_text_put(t, "\\%c", *text);
		else if ((n == 1 && *text < ' ') || *text == 0x7f)
			zero_text_put(t, "\\u%04x", (unsigned)*text);
		else
			zero_text_put(t, "%.*s", (int)n, text);
		text += n ? n : 1;
	}
	zero_text_put(t, "\"");
}
