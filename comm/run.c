/* See run.h. Every wait of a collective is here. */
#include "run.h"

#include "clock.h"
#include "watch.h"

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Spins, then lets watch.c give the core away. */
static int wait_longer(struct ko_run *run, int peer, const char *transport, ko_try_fn *try, void *what)
{
	struct ko_watch watch;
	int rc = KO_EAGAIN;

	for (int spins = 0; rc == KO_EAGAIN && spins < run->comm->spins; spins++) {
		relax();
		rc = try(what);
	}
	if (rc != KO_EAGAIN)
		return rc;
	ko_watch_begin(&watch, run->comm, &run->desc, peer, transport);
	while ((rc = try(what)) == KO_EAGAIN) {
		int trouble = ko_watch(&watch);

		if (trouble == 0)
			continue;
		rc = try(what); /* it may have come before what went wrong */
		if (rc == KO_EAGAIN)
			rc = trouble;
		break;
	}
	ko_watch_end(&watch);
	return rc;
}

int ko_wait(struct ko_run *run, int peer, const char *transport, enum ko_trace_kind kind, ko_try_fn *try,
	    void *what)
{
	int rc = try(what);
	int64_t since;

	if (rc != KO_EAGAIN)
		return rc;
	since = run->since ? ko_now_ns() : 0;
	rc = wait_longer(run, peer, transport, try, what);
	ko_trace_add(run->comm->trace, kind, since, (uint64_t)peer, NULL);
	return rc;
}
