/* What the first ringrun tells an agent: which ranks to start, and how. */
#ifndef TOOLS_RINGRUN_BASE_JOB_H
#define TOOLS_RINGRUN_BASE_JOB_H

#include "tools/ringrun/base/wire.h"

enum binding { BIND_NONE, BIND_CORE, BIND_SHARE };

struct job {
	char *host;        /* its name in messages; NULL: the job has one host, no name is needed */
	int node, nnodes;  /* which host of how many */
	int nranks;        /* of the job */
	int first, nlocal; /* ranks first .. first + nlocal - 1 are here */
	int nslots, *slots; /* the k-th local rank has slots[k]; 0: no devices are chosen */
	char **command;     /* ends with NULL */
	char **environment; /* NAME=VALUE, for the ranks; ends with NULL */
	char *wdir;         /* NULL: where the agent is */
	int bind;           /* enum binding: of ranks to cores */
	char *cores;        /* --bind_core_list; NULL: all that this process may use */
	int omp;            /* flag: set OMP_NUM_THREADS to a rank's share of the cores */
	int relay;          /* flag: standard output and error go through the agent, line by line */
	int tag;            /* flag: each line begins with its rank */
	int input;          /* flag: rank 0's standard input comes through the agent */
	int local_rank_option; /* flag: the command gets --local_rank=K after the word
				  `local_rank_at` */
	int local_rank_at;
	char *logs;     /* --enable_each_rank_log: a folder; NULL: none */
	char *pid_file; /* --save_pid; NULL: none */
	char *root;     /* --no_ssh: KOLO_ROOT of the ranks instead of an id; NULL: an id */
	int port; /* MASTER_PORT that was asked for; 0: any that is free; -1: 29500 if it is free */
};

enum { DEFAULT_MASTER_PORT = 29500 };

void job_write(const struct job *job, struct bytes *out);

/* Returns false if the bytes are no job. */
bool job_read(struct job *out, const char *data, size_t len);

#endif
