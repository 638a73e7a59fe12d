/* JSON that several tools write. */
#ifndef TOOLS_COMMON_JSON_H
#define TOOLS_COMMON_JSON_H

#include <stdio.h>

/* A string, or null. Bytes that are no UTF-8 become U+FFFD. */
void tool_put_json_text(FILE *out, const char *text);

#endif
