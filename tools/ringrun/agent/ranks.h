/* The ranks of one host: starting them, where they write, and which of them has ended. */
#ifndef TOOLS_RINGRUN_AGENT_RANKS_H
#define TOOLS_RINGRUN_AGENT_RANKS_H

#include "tools/ringrun/agent/environment.h"
#include "tools/ringrun/agent/lines.h"
#include "tools/ringrun/base/job.h"

#include <sys/types.h>

struct rank {
	pid_t pid;           /* 0 before it starts and once it has ended */
	struct lines out[2]; /* standard output and standard error, with job->relay */
	struct bytes tail;
	char *log; /* the file that it writes to; NULL: none */
};

struct ranks {
	const struct job *job;
	struct rank *at; /* job->nlocal */
	int running;
	int input; /* with job->input: what becomes rank 0's standard input is written here; else -1
		    */
};

/* Starts all ranks. Returns 0, or -1 with a text in `why`; then some may run. */
int ranks_start(struct ranks *r, const struct job *job, const struct meeting *meeting, char *why,
		size_t room);

void ranks_signal(const struct ranks *r, int sig);

/* Takes one process that has ended. Returns false if there is none. *local is the rank's number on
 * this host, or -1 for another process. */
bool ranks_reap(struct ranks *r, int *local, int *wait_status);

/* The last lines that a rank wrote. The caller frees them. */
char *ranks_last_lines(const struct ranks *r, int local);

#endif
