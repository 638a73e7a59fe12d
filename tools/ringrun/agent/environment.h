/* The environment of a rank: what it gets, what it loses, and what goes to other hosts. */
#ifndef TOOLS_RINGRUN_AGENT_ENVIRONMENT_H
#define TOOLS_RINGRUN_AGENT_ENVIRONMENT_H

#include "tools/ringrun/base/job.h"

/* What every rank of the job has, found once all hosts have answered. */
struct meeting {
	const char *id;     /* KOLO_ID in hex; NULL: job->root is used */
	const char *master; /* MASTER_ADDR; NULL: none was chosen */
	int port;           /* MASTER_PORT */
};

/* In the agent: drops what another launcher has set for this process, then sets what is the same
 * for all ranks of this host. */
void environment_of_host(const struct job *job, const struct meeting *meeting, int cores_of_a_rank);

/* In a child of the agent: sets what is this rank's alone. */
void environment_of_rank(const struct job *job, int local_rank);

/* The variables of this process that ranks on other hosts get too, as NAME=VALUE: some by their
 * names, then those of .deepspeed_env, then `wanted` (-x: NAME or NAME=VALUE). Ends with NULL.
 * Returns NULL after a message if one can't be had. */
char **environment_to_export(char *const *wanted);

/* Does a rank lose this variable? */
bool environment_drops(const char *variable);

#endif
