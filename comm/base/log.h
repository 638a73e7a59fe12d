/* The log: where KOLO_LOG says, and to the callback of the communicator's attributes. One line each. */
#ifndef COMM_BASE_LOG_H
#define COMM_BASE_LOG_H

#include "kolo/kolo.h"

/* Who wants to hear. A communicator has one; where none is at hand (the thread that serves an id) NULL stands for
 * KOLO_LOG alone. */
struct ko_log {
	kolo_log_fn *fn; /* NULL: none */
	void *arg;
	enum kolo_log_level fn_level; /* the highest that fn wants */
	int rank;                     /* for the line; -1: not known yet */
};

/* Is KOLO_LOG something that can be followed? Errors: KOLO_EINVAL. */
int ko_log_check(void);

/* Does anyone want to hear this? For what is costly to say. */
int ko_log_wants(const struct ko_log *log, enum kolo_log_level level);

/* Never fails: a log that can't be written is not written. Keeps errno. */
void ko_log(const struct ko_log *log, enum kolo_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
