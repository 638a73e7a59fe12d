/* Calls what another library needs on a thread that waits (ko_progress_make). */
#include "comm/sys/progress.h"

#include "comm/base/clock.h"
#include "comm/sys/thread.h"

#include <stdatomic.h>

/* This thread is in the function now. */
static _Thread_local bool inside;

bool ko_progress_allowed(void)
{
	return !inside && !ko_thread_is_own();
}

void ko_progress_make(const struct ko_progress *p)
{
	if (!ko_progress_has(p))
		return;
	inside = true;
	p->fn(p->arg);
	inside = false;
}

bool ko_progress_stopped(const struct ko_progress *p)
{
	return p->stop && atomic_load_explicit(p->stop, memory_order_relaxed);
}

int ko_progress_poll(const struct ko_progress *p, struct pollfd *polls, nfds_t n, int ms)
{
	enum { STEP_MS = 1 };
	int64_t until = ko_now_ms() + ms;
	int got;

	if (!ko_progress_has(p))
		return poll(polls, n, ms);
	while ((got = poll(polls, n, STEP_MS)) == 0 && (ms < 0 || ko_now_ms() < until))
		ko_progress_make(p);
	return got;
}
