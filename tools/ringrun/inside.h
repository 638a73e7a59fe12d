/* What the files of the first ringrun share: its state. */
#ifndef TOOLS_RINGRUN_INSIDE_H
#define TOOLS_RINGRUN_INSIDE_H

#include "tools/ringrun/check.h"
#include "tools/ringrun/outcome.h"
#include "tools/ringrun/peers.h"
#include "tools/ringrun/starters.h"
#include "tools/ringrun/writer.h"

struct head {
	const struct plan *plan;
	struct peers peers;
	struct starters starters;
	char *line; /* the secret's, when one serves all agents; else NULL */
	int signals, wake;
	struct writer *writers[2];
	struct outcome outcome;
	struct check *check; /* --check: nothing is started; else NULL */
	struct pollfd *polls;
	int64_t began, next_progress;
	int64_t next_look; /* for hosts that are cut off */
	char *master;
	bool started;     /* the ranks */
	bool told_to_end; /* by a signal */
	bool ending;      /* the agents have been told to end */
	int left;         /* ranks that have not ended */
	int64_t deadline; /* what is left then is given up; 0: none */
	int input;        /* standard input; -1: at its end, or not ours to read */
	int64_t input_window;
};

/* With -v: a line with the seconds since the start. */
__attribute__((format(printf, 2, 3))) void start_tell(const struct head *h, const char *fmt, ...);

/* Makes the agents of this host, and begins to start the others. Returns 0, or -1 after a message;
 * then nothing has begun that close_all does not end. */
int start_begin(struct head *h);

/* Starts more agents, if few are awaited. */
void start_more(struct head *h);

/* Tells an agent its part. */
void start_greet(const struct head *h, struct peer *peer);

/* Once all agents have answered: asks for the meeting point. */
void start_meeting_point(struct head *h);

/* Once that is there: has the ranks started. */
void start_ranks(struct head *h, const struct message *served);

#endif
