/* What an agent finds on its host for --check. */
#ifndef TOOLS_RINGRUN_BASE_FACTS_H
#define TOOLS_RINGRUN_BASE_FACTS_H

#include "tools/ringrun/base/wire.h"

enum { UNKNOWN = -1 };

struct facts {
	int clock_us; /* its clock minus that of the first ringrun, when asked; at most +-2000 s */
	int took_us;  /* from the question to the answer */
	int cores;    /* that ranks may use */
	int uid;      /* the user */
	int memlock_kib;    /* limit of locked memory; UNKNOWN: none */
	int nofile;         /* limit of descriptors */
	int nofile_max;     /* to which a program may raise it */
	int shm_mib;        /* free in /dev/shm; UNKNOWN: it is not there */
	int ptrace_scope;   /* Yama's; UNKNOWN: there is none */
	int gpus;           /* that the driver has */
	int gpus_denied;    /* of these: that this user may not open */
	int master_port;    /* flag: MASTER_PORT is free */
	int wdir, program;  /* flags: both are there */
	int port;           /* where it listens for the other hosts */
	char *hostname;     /* its own name */
	char *name_address; /* what that name stands for on this host; NULL: nothing */
	char **interfaces;  /* "NAME ADDRESS MBIT": up, not loopback; MBIT is UNKNOWN or a rate */
	char **rdma;        /* "NAME PORT STATE RATE denied|allowed" for each port of a device */
	char **variables;   /* NAME=VALUE that a login sets here and that decide about jobs */
};

void facts_write(const struct facts *f, struct bytes *out);

/* Returns false if the bytes are no facts. */
bool facts_read(struct facts *out, const char *data, size_t len);

#endif
