/* What the files of ringrun share: the options. */
#ifndef TOOLS_RINGRUN_RINGRUN_H
#define TOOLS_RINGRUN_RINGRUN_H

#include <stdbool.h>

enum {
	EXIT_OWN = 125,        /* ringrun itself failed */
	EXIT_CANNOT_RUN = 126, /* PROGRAM exists and can't be run */
	EXIT_NOT_FOUND = 127,
	GRACE_MS = 2000, /* when a rank has failed: for the others to say why, then again after
			    SIGTERM */
};

enum binding { BIND_NONE, BIND_CORE, BIND_SHARE };

struct options {
	int nranks;
	enum binding bind;
	bool tag;
	char **command;
};

/* Fills *o from the command line; leaves the process for --help, --version and mistakes. */
void parse_options(int argc, char **argv, struct options *o);

#endif
