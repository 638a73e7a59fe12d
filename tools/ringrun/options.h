/* ringrun's command line. */
#ifndef TOOLS_RINGRUN_OPTIONS_H
#define TOOLS_RINGRUN_OPTIONS_H

#include "tools/ringrun/base/job.h"

#include <stdbool.h>

enum launcher { BY_SSH, BY_PDSH, BY_SLURM, BY_OPENMPI, BY_MPICH, BY_IMPI, BY_MVAPICH, LAUNCHERS };

struct options {
	int nranks; /* -n; 0: one for each slot */

	/* which hosts */
	const char *hostfile, *host, *include, *exclude;
	int num_nodes, num_gpus; /* 0: all */

	/* how they are reached */
	enum launcher launcher;
	const char *launcher_args;
	int ssh_port; /* 0: ssh's own choice */
	bool force_multi, no_ssh, no_ssh_check;
	int node_rank; /* -1: none */
	const char *master_addr;
	int master_port; /* -1: 29500 if it is free; 0: any free one */

	/* how ranks run */
	enum binding bind;
	bool omp; /* --bind_cores_to_rank */
	const char *core_list, *wdir, *logs;
	char **exports; /* -x; ends with NULL */
	bool module, no_python, no_local_rank, tag, save_pid;

	/* what ringrun does */
	bool print_command, check, verbose, quiet;

	/* as an agent */
	const char *agent; /* "-" or a file: where the secret is; NULL: no agent */
	int agent_node;    /* -1: not given */

	char **command; /* ends with NULL; NULL with --check */
};

/* Fills *o from the command line. Leaves the process for --help, --version and mistakes. */
void parse_options(int argc, char **argv, struct options *o);

/* "ssh", "pdsh", ..: the name of a launcher for --launcher. */
const char *launcher_name(enum launcher launcher);

#endif
