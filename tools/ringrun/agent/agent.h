/* An agent: what ringrun is on each host. It keeps the ranks of its host, passes on what they
 * write, and serves their meeting point on the first host. It ends everything if the first ringrun,
 * or the process above it, is gone. */
#ifndef TOOLS_RINGRUN_AGENT_AGENT_H
#define TOOLS_RINGRUN_AGENT_AGENT_H

#include "tools/ringrun/base/wire.h"

/* Serves the first ringrun at the other end until all is over. Returns the exit status. */
int agent_run(const struct wire *wire);

/* In a process that something else has started on a host: finds the first ringrun by `where`, which
 * is a file, or "-" for standard input, and serves it from a child. `node` is this host's place in
 * its launcher's list; -1: the launcher's environment has it. Returns the exit status. */
int agent_start(const char *where, int node);

#endif
