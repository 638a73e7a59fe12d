#include "tools/ringrun/outcome.h"

#include "tools/ringrun/base/processes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	WINDOW_MS = 150, /* for reports of other hosts; short for whoever waits for the message */
	LAST_LINES = 10,
};

void outcome_note(struct outcome *o, enum weight weight, int code, const char *tail,
		  const char *fmt, ...)
{
	va_list args;

	if (o->reported || weight <= o->weight)
		return;
	if (!o->weight)
		o->decided = now_ms() + WINDOW_MS;
	o->weight = weight;
	o->code = code;
	free(o->text);
	free(o->tail);
	o->tail = tail && *tail ? need(strdup(tail)) : NULL;
	va_start(args, fmt);
	if (vasprintf(&o->text, fmt, args) < 0)
		o->text = need(NULL);
	va_end(args);
}

/* The last lines of `text`, each with two blanks before it. */
static void print_tail(const char *text)
{
	size_t len = strlen(text);
	const char *from = text + len;
	int lines = 0;

	while (from > text && (from == text + len || from[-1] != '\n' || ++lines < LAST_LINES))
		from--;
	fputs("ringrun: its last lines:\n", stderr);
	while (*from) {
		size_t line = strcspn(from, "\n");

		fprintf(stderr, "  %.*s\n", (int)line, from);
		from += line + (from[line] == '\n');
	}
}

bool outcome_report(struct outcome *o)
{
	if (!o->weight || o->reported || now_ms() < o->decided)
		return false;
	o->reported = true;
	say("%s", o->text);
	if (o->tail)
		print_tail(o->tail);
	return true;
}
