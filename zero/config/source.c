/* The text of a config: reads it (zero_source_read), blanks its comments (zero_source_blank), and
 * finds the line and column of a key for errors and remarks (zero_refuse_key, zero_note).
 *
 * jansson reports positions of syntax errors only. The keys located here are in a text that jansson
 * has read, so it is well-formed. */
#include "zero/config/source.h"

#include "zero/config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 20 }; /* bytes of a file; real configs have a few thousand */

/* Where a character is. Both count from 1. */
struct spot {
	int line, column;
};

/* Whether a byte continues a character of UTF-8. Such bytes are not counted as columns. */
static bool continues(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

static struct spot find_spot(const char *text, const char *at)
{
	struct spot s = { 1, 1 };

	for (; text < at; text++) {
		s.column += !continues(*text);
		if (*text == '\n')
			s = (struct spot){ s.line + 1, 1 };
	}
	return s;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static int read_all(const char *path, FILE *f, char **out)
{
	char *text = malloc(LARGEST + 2), *zero;
	struct spot s;
	size_t len;

	*out = text;
	if (!text)
		return kolo_error_set(KOLO_ENOMEM, "%.200s: out of memory", path);
	len = fread(text, 1, LARGEST + 1, f);
	text[len] = 0;
	if (ferror(f))
		return kolo_error_set(KOLO_ESYS, "%.200s: reading it: %s", path, strerror(errno));
	if (len > LARGEST)
		return kolo_error_set(KOLO_EINVAL, "%.200s: more than %d bytes: want a config",
				      path, LARGEST);
	zero = memchr(text, 0, len);
	if (!zero)
		return 0;
	s = find_spot(text, zero);
	return kolo_error_set(KOLO_EINVAL, "%.200s:%d:%d: a byte that is 0: want a text", path,
			      s.line, s.column);
}

int zero_source_read(const char *path, char **out)
{
	FILE *f = fopen(path, "re");
	int rc;

	*out = NULL;
	if (!f)
		return kolo_error_set(KOLO_ESYS, "%.200s: opening it: %s", path, strerror(errno));
	rc = read_all(path, f, out);
	fclose(f);
	if (rc < 0) {
		free(*out);
		*out = NULL;
	}
	return rc;
}

/* ---- Comments -------------------------------------------------------------------------------- */

/* Returns the place after the string that begins at p, or the text's end. */
static char *skip_string(const char *p)
{
	for (p++; *p && *p != '"'; p++)
		if (*p == '\\' && p[1])
			p++;
	return (char *)p + (*p == '"');
}

/* If a comment begins at p, returns the place after it, or its line's end. Returns p if there is no
 * comment there, and NULL if the comment has no end. */
static char *find_comment_end(char *p)
{
	char *end;

	if (*p == '#' || (*p == '/' && p[1] == '/'))
		return p + strcspn(p, "\n");
	if (*p != '/' || p[1] != '*')
		return p;
	end = strstr(p + 2, "*/");
	return end ? end + 2 : NULL;
}

int zero_source_blank(const char *name, char *text)
{
	char *out = text;

	for (char *p = text; *p;) {
		char *end = find_comment_end(p);
		bool comment = end != p;

		if (!end) {
			struct spot s = find_spot(text, out);

			return kolo_error_set(KOLO_EINVAL,
					      "%.200s:%d:%d: a comment without end: want */", name,
					      s.line, s.column);
		}
		if (!comment)
			end = *p == '"' ? skip_string(p) : p + 1;
		for (; p < end; p++) {
			if (!comment)
				*out++ = *p;
			else if (!continues(*p))
				*out++ = *p == '\n' ? '\n' : ' ';
		}
	}
	*out = 0;
	return 0;
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static const char *skip_space(const char *p)
{
	return p + strspn(p, " \t\r\n");
}

/* Returns the place after the value at p. */
static const char *skip_value(const char *p)
{
	int depth = 0;

	do {
		if (*p == '"') {
			p = skip_string(p);
			continue;
		}
		depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
		p++;
	} while (*p && (depth > 0 || !strchr(",}] \t\r\n", *p)));
	return p;
}

/* Finds the key of `len` bytes in the object at p, and its value. NULL if there is none. */
static const char *find_member(const char *p, const char *name, size_t len, const char **value)
{
	if (*p != '{')
		return NULL;
	for (p = skip_space(p + 1); *p == '"'; p = skip_space(p)) {
		const char *key = p, *end = skip_string(p);

		*value = skip_space(skip_space(end) + 1);
		if ((size_t)(end - key) == len + 2 && memcmp(key + 1, name, len) == 0)
			return key;
		p = skip_space(skip_value(*value));
		p += *p == ',';
	}
	return NULL;
}

/* Finds the key that a path ends with, and its value. A key may contain dots, so it may be all the
 * rest of the path. */
static const char *find_key(const char *text, const char *path, const char **value)
{
	const char *key = NULL, *object = skip_space(text);

	for (; *path; object = *value) {
		size_t len = strlen(path);

		key = find_member(object, path, len, value);
		if (!key) {
			len = strcspn(path, ".");
			key = find_member(object, path, len, value);
		}
		if (!key)
			return NULL;
		path += len + (path[len] == '.');
	}
	return key;
}

/* Finds the last key that begins before `end`, and its path. The text must be well-formed up to
 * `end`. */
static const char *find_last_key(const char *text, const char *end, char path[ZERO_PATH])
{
	enum { DEEPEST = 32 };
	size_t lens[DEEPEST] = { 0 }; /* of the path to each object or list that is open */
	const char *key = text;
	char open[DEEPEST] = "";
	bool expected = false; /* the next string is a key */
	int depth = 0;

	*path = 0;
	for (const char *p = text; p < end && depth < DEEPEST - 1;
	     p = *p == '"' ? skip_string(p) : p + 1) {
		if (*p == '{' || *p == '[') {
			open[++depth] = *p;
			lens[depth] = strlen(path);
		} else if ((*p == '}' || *p == ']') && depth > 0) {
			path[lens[depth--]] = 0;
		} else if (*p == '"' && expected) {
			key = p;
			snprintf(path + lens[depth], ZERO_PATH - lens[depth], "%s%.*s",
				 lens[depth] ? "." : "", (int)(skip_string(p) - p - 2), p + 1);
		}
		if (!strchr(" \t\r\n", *p))
			expected = (*p == '{' || *p == ',') && open[depth] == '{';
	}
	return key;
}

int zero_refuse_twice(const struct zero_reading *r, size_t end)
{
	char path[ZERO_PATH];
	struct spot s = find_spot(r->text, find_last_key(r->text, r->text + end, path));

	return kolo_error_set(KOLO_EINVAL,
			      "%.100s:%d:%d: %.90s is given twice: keep one of the two", r->name,
			      s.line, s.column, path);
}

static int refuse(const struct zero_reading *r, const char *path, bool at_value, const char *format,
		  va_list args)
{
	const char *value, *key = find_key(r->text, path, &value);
	struct spot s = { 0 };
	char text[360];

	vsnprintf(text, sizeof(text), format, args);
	if (!key)
		return kolo_error_set(KOLO_EINVAL, "%.100s: %.90s %s", r->name, path, text);
	s = find_spot(r->text, at_value ? value : key);
	return kolo_error_set(KOLO_EINVAL, "%.100s:%d:%d: %.90s %s", r->name, s.line, s.column,
			      path, text);
}

int zero_refuse_key(const struct zero_reading *r, const char *path, const char *format, ...)
{
	va_list args;
	int rc;

	va_start(args, format);
	rc = refuse(r, path, false, format, args);
	va_end(args);
	return rc;
}

int zero_refuse_value(const struct zero_reading *r, const char *path, const char *format, ...)
{
	va_list args;
	int rc;

	va_start(args, format);
	rc = refuse(r, path, true, format, args);
	va_end(args);
	return rc;
}

int zero_note(const struct zero_reading *r, const char *path, const char *text)
{
	const char *value, *key = find_key(r->text, path, &value);
	struct zero_settings *s = r->out;
	char **notes = realloc(s->notes, ((size_t)s->nnotes + 1) * sizeof(*notes)), line[24] = "";
	size_t room = strlen(path) + sizeof(line) + strlen(text) + sizeof(": ");

	if (notes) {
		s->notes = notes;
		notes[s->nnotes] = malloc(room);
	}
	if (!notes || !notes[s->nnotes])
		return kolo_error_set(KOLO_ENOMEM, "%.200s: a remark: out of memory", r->name);
	if (key)
		snprintf(line, sizeof(line), " (line %d)", find_spot(r->text, key).line);
	snprintf(notes[s->nnotes++], room, "%s%s: %s", path, line, text);
	return 0;
}
