/* The processes that start agents: ssh for each host, or one pdsh, srun or mpirun for all. */
#ifndef TOOLS_RINGRUN_STARTERS_H
#define TOOLS_RINGRUN_STARTERS_H

#include "tools/ringrun/plan.h"

#include <sys/types.h>

struct starter {
	pid_t pid;         /* 0 once it has ended */
	int first, n;      /* which of starters.nodes it starts */
	int err;           /* what it and its agents write; -1: closed */
	struct bytes part; /* of a line of that */
	char *last;        /* its last line; NULL: it has written none */
};

struct starters {
	const struct plan *plan;
	int *nodes, nnodes; /* hosts that need a launcher */
	int n, next;        /* starters; next of `nodes` */
	struct starter *at;
	char *file;    /* with the secret; NULL: none */
	int file_kept; /* its removal waits for the end of this descriptor; -1: none */
};

/* Finds the hosts that need one. Starts nothing. */
void starters_init(struct starters *s, const struct plan *p);

/* Starts the next one, whose agents get `line`, or read it in the file. Returns 0, or -1 after a
 * message. */
int starters_start_next(struct starters *s, const char *line);

/* Makes the file for launchers that pass on no input. It vanishes with starters_remove_file, or
 * with this process. Returns 0, or -1 after a message. */
int starters_make_file(struct starters *s, const char *line);
void starters_remove_file(struct starters *s);

/* Prints whole lines of what a starter and its agents write to standard error, with the host's
 * name. */
void starter_read(struct starters *s, struct starter *starter);

/* "ssh to b", "srun": for messages. Returns out. */
enum { STARTER_TEXT = 300 };
const char *starter_text(const struct starters *s, const struct starter *starter,
			 char out[STARTER_TEXT]);

/* Prints what would be started, as a shell would read it. Returns 0, or -1 after a message. */
int starters_print(struct starters *s);

#endif
