/* Starts a thread with signals blocked (ko_thread_start); gives the core away (ko_yield). */
#include "comm/sys/thread.h"

#include "comm/base/clock.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

struct start {
	void *(*run)(void *arg);
	void *arg;
};

static _Thread_local bool own;

static void *begin(void *arg)
{
	struct start start = *(struct start *)arg;

	free(arg);
	own = true;
	return start.run(start.arg);
}

bool ko_thread_is_own(void)
{
	return own;
}

int ko_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
	struct start *start = malloc(sizeof(*start));
	sigset_t all, before;
	int err;

	if (!start)
		return ENOMEM;
	*start = (struct start){ run, arg };
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(out, NULL, begin, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		free(start);
	return err;
}

int64_t ko_yield(void)
{
	int64_t since = ko_now_ns();

	sched_yield();
	return ko_now_ns() - since;
}
