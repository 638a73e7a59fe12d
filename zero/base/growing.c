/* A text that grows (zero_growing_put). open_memstream would not do: it loses text when memory runs
 * out, and no single place reports that. */
#include "zero/base/growing.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool make_room(struct zero_growing *g, size_t len)
{
	size_t room = g->room ? g->room : 256;
	char *more;

	while (room - g->len <= len)
		room *= 2;
	if (room == g->room)
		return true;
	more = realloc(g->text, room);
	if (!more)
		return false;
	g->text = more;
	g->room = room;
	return true;
}

void zero_growing_put(struct zero_growing *g, const char *format, ...)
{
	va_list args, again;
	int len;

	if (g->failed)
		return;
	va_start(args, format);
	va_copy(again, args);
	len = vsnprintf(NULL, 0, format, args);
	g->failed = len < 0 || !make_room(g, (size_t)len);
	if (!g->failed)
		g->len += (size_t)vsnprintf(g->text + g->len, (size_t)len + 1, format, again);
	va_end(again);
	va_end(args);
}
