/* What the command line asks for: which hosts with which ranks, and what each agent is told. Starts
 * nothing. */
#ifndef TOOLS_RINGRUN_PLAN_H
#define TOOLS_RINGRUN_PLAN_H

#include "tools/ringrun/hosts.h"
#include "tools/ringrun/options.h"

struct plan {
	const struct options *options;
	struct hosts hosts;
	int nranks;
	int node, nnodes; /* --no_ssh: `hosts` is one of nnodes, number `node`; else 0, hosts.n */
	char *root;       /* --no_ssh: KOLO_ROOT, where the ranks meet; else NULL */
	bool devices;     /* slots are devices: ranks get CUDA_VISIBLE_DEVICES */
	bool *here;       /* for each host: it is this one, and its agent needs no launcher */
	bool alone;       /* one host, and it is this one: no host has a name in messages */
	char **export;    /* what ranks get, NAME=VALUE */
	char **command;
	int local_rank_at; /* the word after which a Python program gets --local_rank=K; -1: none */
	char *wdir;
};

/* Fills *p. Returns 0, or -1 after a message. */
int plan_make(const struct options *o, struct plan *p);

/* What the agent of host k is told. The texts are the plan's. */
struct job plan_job(const struct plan *p, int k);

/* "ranks 0 to 3", "rank 4". Returns out. */
enum { RANKS_TEXT = 48 };
const char *plan_ranks_text(const struct host *host, char out[RANKS_TEXT]);

#endif
