/* What a thread that waits in Kolo calls in between, so that another library on it goes on too
 * (struct kolo_comm_attr). Threads of Kolo's own never do. */
#ifndef COMM_SYS_PROGRESS_H
#define COMM_SYS_PROGRESS_H

#include "kolo/kolo.h"

#include <poll.h>
#include <stdbool.h>

struct ko_progress {
	kolo_progress_fn *fn; /* NULL: none */
	void *arg;
	const _Atomic int *stop; /* not 0: the wait must end; NULL: it need not */
};

/* May this thread call the function? Not one of Kolo's own, and not within it. */
bool ko_progress_allowed(void);

/* Will ko_progress_make call something on this thread? */
static inline bool ko_progress_has(const struct ko_progress *p)
{
	return p->fn && ko_progress_allowed();
}

/* Calls it, if this thread may. Not while it is being called. */
void ko_progress_make(const struct ko_progress *p);

/* Has another thread said that the wait must end (kolo_id_abort)? */
bool ko_progress_stopped(const struct ko_progress *p);

/* As poll, and calls it in between. */
int ko_progress_poll(const struct ko_progress *p, struct pollfd *polls, nfds_t n, int ms);

#endif
