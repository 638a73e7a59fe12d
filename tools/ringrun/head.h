/* The first ringrun, which the user has started: it starts an agent on each host, tells them what
 * to do, and passes on output, input and signals until all have ended. */
#ifndef TOOLS_RINGRUN_HEAD_H
#define TOOLS_RINGRUN_HEAD_H

#include "tools/ringrun/plan.h"

/* Runs the job. Returns the exit status. */
int head_run(const struct plan *p);

#endif
