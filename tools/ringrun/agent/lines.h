/* What a rank writes, on its way to the first ringrun: whole lines only. */
#ifndef TOOLS_RINGRUN_AGENT_LINES_H
#define TOOLS_RINGRUN_AGENT_LINES_H

#include "tools/ringrun/base/wire.h"

enum {
	LINE = 65536, /* bytes of the longest line that stays whole */
	TAIL = 2048,  /* bytes of a rank's last lines that are kept for the report of its failure */
};

struct lines {
	int fd;     /* the end of a pipe, which never blocks; -1: at its end */
	int stream; /* 1: standard output, 2: standard error */
	int tag;    /* >= 0: each line begins with [tag] */
	struct bytes part, *tail;
};

/* Opens a pipe. Returns the descriptor that the rank writes to, or -1. */
int lines_open(struct lines *l, int stream, int tag, struct bytes *tail);

/* Reads what has come and sends the whole lines of it; at the end the rest too. Returns how many
 * bytes were sent. */
size_t lines_pass_on(struct lines *l, struct wire *w);

/* Appends to the last lines of a rank, and forgets what came before the last TAIL bytes. */
void tail_add(struct bytes *tail, const char *text, size_t len);

#endif
