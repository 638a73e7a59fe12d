/* Bells wake ranks of one host: a rank that has waited for a while sleeps until the one that it
 * waits for does something. They lie in memory that all ranks of the host share. */
#ifndef COMM_HEALTH_BELLS_H
#define COMM_HEALTH_BELLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One rank's bell. Only that rank writes it, except `rung`. */
struct ko_bell {
	/* the rank for which it sleeps, plus 1; 0: it does not sleep */
	_Alignas(16) _Atomic int32_t waits_for;
	_Atomic uint32_t any;  /* 1: each rank that does something wakes it */
	_Atomic uint32_t rung; /* a futex: how often others have rung */
};

struct ko_bells {
	/* how many ranks sleep; rarely written */
	_Alignas(64) _Atomic uint32_t sleepers;
	_Alignas(64) struct ko_bell at[]; /* by rank */
};

size_t ko_bells_len(int nranks);

/* Wakes the ranks that sleep until `rank` does something. ko_bells_ring does so only if any rank
 * sleeps. */
void ko_bells_wake(struct ko_bells *bells, int rank, int nranks);
static inline void ko_bells_ring(struct ko_bells *bells, int rank, int nranks)
{
	if (atomic_load_explicit(&bells->sleepers, memory_order_relaxed))
		ko_bells_wake(bells, rank, nranks);
}

/* Lets `rank` sleep until `peer` rings, or with `any` each rank, but at most `us` microseconds,
 * less than 1 s. */
void ko_bells_sleep(struct ko_bells *bells, int rank, int peer, bool any, int64_t us);

#endif
