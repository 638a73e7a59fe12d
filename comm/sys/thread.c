/* Starts a thread with signals blocked (ko_thread_start); gives the core away (ko_yield); measures
 * pauses of the processor (ko_relaxes_in). */
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

int ko_relaxes_in(int64_t ns)
{
	enum { REPEATS = 5, CALLS = 32 };
	int64_t least = INT64_MAX;

	for (int k = 0; k < REPEATS; k++) { /* a thread that was interrupted takes longer */
		int64_t began = ko_now_ns(), took;

		for (int i = 0; i < CALLS; i++)
			ko_relax();
		took = ko_now_ns() - began;
		least = took < least ? took : least;
	}
	return least > 0 && least < ns * CALLS ? (int)(ns * CALLS / least) : 1;
}

int64_t ko_yield(void)
{
	int64_t since = ko_now_ns();

	sched_yield();
	return ko_now_ns() - since;
}
