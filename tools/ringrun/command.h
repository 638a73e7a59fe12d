/* The commands that start agents on other hosts, one for each launcher. */
#ifndef TOOLS_RINGRUN_COMMAND_H
#define TOOLS_RINGRUN_COMMAND_H

#include "tools/ringrun/plan.h"

#include <stdio.h>

struct command {
	char **words;   /* ends with NULL */
	char *variable; /* NAME=VALUE of its environment; NULL: none */
};

/* Does this launcher start each host with a command of its own, which passes on standard input? */
bool command_is_for_each_host(enum launcher launcher);

/* Does it pass on standard input to all agents? If not they read a file. */
bool command_passes_input(enum launcher launcher);

/* Makes the command. `nodes` has the numbers of n hosts; `file` is where the secret is, "-" for
 * standard input. Returns 0, or -1 after a message. */
int command_make(const struct plan *p, const int *nodes, int n, const char *file,
		 struct command *out);

void command_free(struct command *c);

/* One line that a shell would read as this command. */
void command_print(const struct command *c, FILE *out);

#endif
