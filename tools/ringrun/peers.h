/* The agents as the first ringrun sees them: who has answered, and the connections of those who
 * have not said yet who they are. */
#ifndef TOOLS_RINGRUN_PEERS_H
#define TOOLS_RINGRUN_PEERS_H

#include "tools/ringrun/base/join.h"
#include "tools/ringrun/plan.h"

#include <poll.h>
#include <sys/types.h>

enum state { AWAITED, JOINED, DONE, LOST };

struct peer {
	const struct host *host;
	struct wire wire;
	enum state state;
	pid_t here; /* the agent's process, if it is a child of ours; else 0 */
	int left;   /* ranks that have not ended */
};

struct peers {
	const struct plan *plan;
	struct door door;
	int n, awaited;
	struct peer *refused; /* whose agent has the secret and can't be taken, after a message */
	struct peer *at;
	int nstrangers;
	struct stranger *strangers;
};

/* Starts the agents of this host, and opens the door for the others. Returns 0, or -1 after a
 * message. */
int peers_open(struct peers *p, const struct plan *plan);

/* Where others knock, to poll; -1 while nobody is let in. Takes those who do. */
int peers_door(const struct peers *p);
void peers_accept(struct peers *p);

/* Descriptors of those who have not said who they are, to poll; returns how many. And those that
 * have something to say: returns the peer that has joined by it, or NULL. */
int peers_strangers(const struct peers *p, struct pollfd *out);
struct peer *peers_hear(struct peers *p, const struct pollfd *polls, int n);

/* Drops strangers that say nothing; all of them with `all`. */
void peers_drop_strangers(struct peers *p, bool all);

/* An address at which the first host is reached by the others. The caller frees it. */
char *peers_master(const struct peers *p);

/* "b, c and 3 more": those that are awaited. Returns out. */
enum { AWAITED_TEXT = 400 };
const char *peers_awaited_text(const struct peers *p, char out[AWAITED_TEXT]);

#endif
