/* What the files of ringinfo share: the job, the probe, the machine, the environment, and two ways
 * to print them. */
#ifndef TOOLS_RINGINFO_RINGINFO_H
#define TOOLS_RINGINFO_RINGINFO_H

#include "kolo/kolo.h"
#include "tools/common/tool.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct options {
	int nranks; /* 0: not given */
	bool probe, environment, json;
};

/* ---- The job --------------------------------------------------------------------------------- */

/* What a rank reports of itself, as plain bytes that can be sent. */
struct rank_facts {
	int pid, next;  /* next is -1 when there is one rank */
	int processors; /* of its host */
	char host[64];
	char transport[12]; /* of the link to next */
	char stores[12];    /* with which it is written; "" when there is none */
	char cpus[256];     /* its cores, like "0-3,8"; "all"; cut: with "..." */
};

/* The edge from a rank to its next, as measured. Plain bytes. */
struct edge {
	double rate, latency; /* 10^9 bytes a second; microseconds, one way */
	uint64_t wrong;       /* words that did not arrive as they were sent */
};

struct job {
	struct kolo_job environment; /* as the launcher made it */
	struct kolo_comm *comm;
	int rank, nranks;
	struct kolo_stats agreed; /* as the communicator began */
	const char *order;        /* of additions */
	struct rank_facts *ranks; /* by rank */
	bool probed;
	struct edge *edges; /* [nranks] by the sending rank, if probed; NULL for one rank */
};

/* Joins the job in the environment and gathers everything except the edges. Returns 0, or an exit
 * status after a message. */
int join_job(struct job *j);

/* Measures the edges, on all ranks. Returns 0 or a kolo_status. */
int probe_edges(struct job *j);

uint64_t count_wrong(const struct job *j); /* on all edges */

/* The best rate and the best latency, each of any of the n >= 1 edges. */
struct edge find_best(const struct edge *edges, int n);

/* A latency below the floor is as good as the best: differences there are noise. SLOW_RULE is the
 * text of the rule. */
bool edge_is_slow(const struct edge *e, const struct edge *best);
#define SLOW_LATENCY_FLOOR_US 1
#define SLOW_RULE             "rate below half of the best, or latency above twice the best and 1 us"

/* How many ranks share the host of `rank`, if they are more than its processors and `rank` is the
 * first of them. Otherwise 0. */
int count_crowd(const struct job *j, int rank);

/* ---- The machine ----------------------------------------------------------------------------- */

/* Something in the machine. Neighbours that differ in name and cpus only are one node with their
 * count. */
struct node {
	const char *what; /* "package", "core", "NIC" ... */
	int count;
	char name[128];   /* "0", "eth0"; of several: with commas; "" */
	char detail[160]; /* caches, memory, model, place; "" */
	char cpus[128];   /* packages and NUMA nodes: "0-31" */
	struct node *children, *next;
};

/* Distances between n things as hwloc has them. */
struct matrix {
	char name[64]; /* "NUMALatency" */
	int n;
	char (*labels)[32]; /* n of them */
	uint64_t *values;   /* n * n, from row to column */
	struct matrix *next;
};

struct machine {
	struct node *root;
	struct matrix *distances;
	const char *note; /* why there is not more to see; NULL */
};

/* Never fails; free_machine frees it. */
void look_at_machine(struct machine *m);
void free_machine(struct machine *m);

/* Allocates zeroed memory. Ends the process if there is none. */
void *info_allocate(size_t n, size_t size);

/* ---- The environment ------------------------------------------------------------------------- */

/* Each call returns one more name that begins with KOLO_ and is not a variable of Kolo. *at is 0 at
 * first. Returns false if there is no other. */
bool next_unknown(int *at, char *name, size_t room);

/* A variable of NCCL's that is set. */
struct foreign {
	char name[128];
	const char *value, *help; /* help: what it does in Kolo's libnccl, or why nothing */
	bool used;
};

/* Finds the next of them, from environ[*at] on. */
bool next_of_nccl(int *at, struct foreign *out);

/* ---- Printing -------------------------------------------------------------------------------- */

/* j is NULL without a job. */
void print_text(FILE *out, const struct machine *m, const struct job *j);
void print_json(FILE *out, const struct machine *m, const struct job *j);

/* The environment variables alone. */
void print_environment_text(FILE *out);
void print_environment_json(FILE *out);

#endif
