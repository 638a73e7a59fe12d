/* How a job ends: what failed first decides about the exit status and the message. Reports of one
 * failure and of its consequences arrive within moments of each other, in any order. So the cause
 * is chosen among those of a short time: a host that is lost before a rank that was killed, and
 * that before a rank that has returned. */
#ifndef TOOLS_RINGRUN_OUTCOME_H
#define TOOLS_RINGRUN_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

enum weight { RANK_RETURNED = 1, RANK_KILLED, HOST_LOST, OWN };

struct outcome {
	enum weight weight; /* 0: nothing has failed */
	int code;           /* the exit status */
	char *text, *tail;  /* the message; the last lines of the rank, or NULL */
	int64_t decided;    /* when the cause stands, in ms */
	bool reported;
};

/* Notes a failure. `tail` may be NULL. */
__attribute__((format(printf, 5, 6))) void outcome_note(struct outcome *o, enum weight weight,
							int code, const char *tail, const char *fmt,
							...);

/* Once the cause stands: prints it, and returns true, the first time. */
bool outcome_report(struct outcome *o);

#endif
