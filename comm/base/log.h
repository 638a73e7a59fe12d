/* The log. Each line goes where KOLO_LOG says, and to the callback in the communicator's
 * attributes. */
#ifndef COMM_BASE_LOG_H
#define COMM_BASE_LOG_H

#include "kolo/kolo.h"

/* A communicator's log. Code that has no communicator (the thread that serves an id) passes NULL:
 * then KOLO_LOG alone counts. */
struct ko_log {
	kolo_log_fn *fn; /* NULL: no callback */
	void *arg;
	enum kolo_log_level fn_level; /* fn gets lines up to this level */
	int rank;                     /* stands in each line; -1: not known yet */
};

/* Checks KOLO_LOG: its level, and that its file can be written. Errors: KOLO_EINVAL. */
int ko_log_check(void);

/* Is a line of this level written anywhere? Ask before work that only the log needs. */
int ko_log_wants(const struct ko_log *log, enum kolo_log_level level);

/* Writes a line. Never fails: a line that can't be written is lost. Keeps errno. */
void ko_log(const struct ko_log *log, enum kolo_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
