/* Writes a text as a JSON string. Bytes that are not UTF-8 are replaced. */
#include "tools/common/json.h"

/* Bytes of the UTF-8 character at `c`, 0 when it is none. */
static int utf8_len(const unsigned char *c)
{
	int len = *c < 0x80                 ? 1
		  : *c >= 0xc2 && *c < 0xe0 ? 2
		  : (*c & 0xf0) == 0xe0     ? 3
		  : (*c & 0xf8) == 0xf0     ? 4
					    : 0;

	for (int i = 1; i < len; i++)
		if ((c[i] & 0xc0) != 0x80)
			return 0;
	/* Longer than needed, a surrogate, or beyond U+10FFFF. */
	if ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] >= 0xa0) ||
	    (c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] >= 0x90) || c[0] > 0xf4)
		return 0;
	return len;
}

void tool_put_json_text(FILE *out, const char *text)
{
	const unsigned char *c = (const unsigned char *)text;

	if (!text) {
		fprintf(out, "null");
		return;
	}
	fputc('"', out);
	while (*c) {
		int len = utf8_len(c);

		if (len == 0)
			fprintf(out, "\\ufffd");
		else if (*c < 0x20)
			fprintf(out, "\\u%04x", *c);
		else
			fprintf(out, "%s%.*s", *c == '"' || *c == '\\' ? "\\" : "", len,
				(const char *)c);
		c += len ? len : 1;
	}
	fputc('"', out);
}
