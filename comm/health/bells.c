#include "comm/health/bells.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

size_t ko_bells_len(int nranks)
{
	/* what follows in the memory begins at a line of the cache */
	return sizeof(struct ko_bells) + ((size_t)nranks * sizeof(struct ko_bell) + 63) / 64 * 64;
}

void ko_bells_wake(struct ko_bells *bells, int rank, int nranks)
{
	for (int r = 0; r < nranks; r++) {
		struct ko_bell *bell = &bells->at[r];

		if (atomic_load_explicit(&bell->waits_for, memory_order_relaxed) != rank + 1 &&
		    !atomic_load_explicit(&bell->any, memory_order_relaxed))
			continue;
		atomic_fetch_add_explicit(&bell->rung, 1, memory_order_relaxed);
		syscall(SYS_futex, &bell->rung, FUTEX_WAKE, 1, NULL, NULL, 0);
	}
}

/* A rank that rings in between is missed, which costs `us` at most: the caller looks again. */
void ko_bells_sleep(struct ko_bells *bells, int rank, int peer, bool any, int64_t us)
{
	struct timespec most = { .tv_nsec = us * 1000 };
	struct ko_bell *own = &bells->at[rank];
	uint32_t rung = atomic_load_explicit(&own->rung, memory_order_relaxed);

	atomic_store_explicit(&own->waits_for, peer + 1, memory_order_relaxed);
	atomic_store_explicit(&own->any, any, memory_order_relaxed);
	atomic_fetch_add_explicit(&bells->sleepers, 1, memory_order_relaxed);
	syscall(SYS_futex, &own->rung, FUTEX_WAIT, rung, &most, NULL, 0);
	atomic_fetch_sub_explicit(&bells->sleepers, 1, memory_order_relaxed);
	atomic_store_explicit(&own->any, 0, memory_order_relaxed);
	atomic_store_explicit(&own->waits_for, 0, memory_order_relaxed);
}
