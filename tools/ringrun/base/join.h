/* How an agent and the first ringrun find each other. The first ringrun listens, and gives whoever
 * starts the agents a line with its addresses and a secret: through standard input, or in a file
 * that only this user may read. An agent connects back and shows the secret; the answer shows that
 * the first ringrun has it too. */
#ifndef TOOLS_RINGRUN_BASE_JOIN_H
#define TOOLS_RINGRUN_BASE_JOIN_H

#include "tools/ringrun/base/wire.h"

enum { SECRET = 33 }; /* hex digits of 128 bits, and the end */

struct door {
	int fd; /* listens; -1: closed */
	int port;
	char secret[SECRET], proof[SECRET];
};

/* What the first message of an agent says. */
struct hello {
	int node;         /* its host's number; -1: its launcher did not tell it */
	const char *name; /* what it calls its host */
	const char *version;
};

/* First ringrun: opens the door. Returns 0, or -1 after a message. */
int door_open(struct door *d);
void door_close(struct door *d);

/* The line for the agent of host `node`; -1: for several agents, in the order in which their
 * launcher numbers them, each in `hosts` as NUMBER=NAME. The caller frees it. */
char *door_line(const struct door *d, int node, char *const *hosts);

/* Reads an agent's first message. Returns false for a stranger. */
bool door_read_hello(const struct door *d, const struct message *m, struct hello *out);

/* Sets what both ends of the connection need, so that a host that is cut off is noticed. */
void set_up_connection(int fd);

/* In how many ms the other end's host counts as cut off, if it goes on saying nothing: 0 if it is.
 * A stopped process's host still answers. -1: the other end is a process of this host. */
enum { CUT_OFF_MS = 12000 };
int cut_off_in(int fd);

/* First ringrun: the answer to a hello that is right. */
void door_answer(const struct door *d, struct wire *w);

/* Agent: connects to the first ringrun, shows the secret and checks its answer. Returns 0, or -1
 * after a message. */
int join_first(const char *where, int node, struct wire *out);

#endif
