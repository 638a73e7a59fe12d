/* Lines of the log, made in memory: numbers and strings, as a parser wants them. */
#include "log.h"

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
		zero_text_put(t, "nan"); /* printf writes some as -nan */
	} else if (value > -0x1p53 && value < 0x1p53 && value == (double)(int64_t)value) {
		zero_text_put(t, "%lld", (long long)value);
	} else {
		zero_text_put(t, "%.*g", exact ? 15 : 6, value);
		for (int digits = 16; exact && digits <= 17 && strtod(t->bytes + begin, NULL) != value;
		     digits++) {
			t->len = begin;
			zero_text_put(t, "%.*g", digits, value);
		}
	}
	uselocale(before);
}

/* Bytes of the character in UTF-8 that text begins with; 0: it is none. */
static size_t character_len(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 || s[0] > 0xf4 ? 0 : 2 + (s[0] >= 0xe0) + (s[0] >= 0xf0);

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* Longer than it need be, one half of a pair of UTF-16, and beyond U+10FFFF */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

void zero_text_quoted(struct zero_text *t, const char *text)
{
	zero_text_put(t, "\"");
	while (*text) {
		size_t n = character_len(text);

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
