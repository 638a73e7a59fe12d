#include "tools/ringrun/base/texts.h"

#include "tools/ringrun/base/processes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void texts_add(char ***list, const char *fmt, ...)
{
	va_list args;
	int n = 0;

	while (*list && (*list)[n])
		n++;
	*list = need(realloc(*list, ((size_t)n + 2) * sizeof(**list)));
	va_start(args, fmt);
	if (vasprintf(&(*list)[n], fmt, args) < 0)
		(*list)[n] = need(NULL);
	va_end(args);
	(*list)[n + 1] = NULL;
}

void texts_free(char **list)
{
	for (int i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}
