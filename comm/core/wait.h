/* Waiting, and what a rank looks after while it waits for another: whether the communicator has failed, whether
 * the other is in the same operation, whether everyone still lives, and how long it has been. The error texts
 * about other ranks are written here; the operation's end tells them to everyone. */
#ifndef COMM_CORE_WAIT_H
#define COMM_CORE_WAIT_H

#include "comm/core/comm.h"

/* Tells the processor that this is a loop that waits. */
static inline void ko_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Is what is waited for there? 0, KO_EAGAIN, or an error. */
typedef int ko_try_fn(void *what);

/* Who waits: a rank, in an operation or, with `seq` 0, while it makes the communicator. */
struct ko_waiter {
	struct kolo_comm *comm;
	const struct ko_desc *desc;
	/* Does it still wait for `rank`? NULL: for all that have not finished the operation */
	bool (*needs)(const struct kolo_comm *c, int rank);
	int64_t since; /* when it began; 0: nobody wants to know */
	bool lost;     /* a link has failed: it will fail, with the best text that there is */
};

/* Blocks until try(what) says something else than KO_EAGAIN; it is rank `peer` who has to do something, through
 * `transport`, and `kind` is the trace's word for it. Errors: try's; KOLO_EMISMATCH, KOLO_EPEER, KOLO_ETIMEDOUT, or
 * whatever another rank failed with. */
int ko_wait_for(const struct ko_waiter *waiter, int peer, const char *transport, enum ko_trace_kind kind,
		ko_try_fn *try, void *what);

/* What the communicator has failed with, also by what other hosts say; where it is spread over hosts, to be asked from time to
 * time. */
int ko_wait_hear(struct kolo_comm *comm);

/* Before an operation: has the communicator failed, or a rank that it needs gone away? */
int ko_wait_health(struct kolo_comm *comm, const struct ko_desc *desc);

/* Has the rank, as far as this one knows, not done its part of the operation? */
bool ko_wait_needs(const struct ko_waiter *waiter, int rank);

/* A link has failed, while `peer` was waited for through `transport`: when a rank dies so do its links, and they may be the
 * first to notice. But what happened is for those to say whose texts name the dead. Waits for them, for a moment, or until
 * `behind`, the rank at its other end, is not needed any more. 0, or what ko_wait_for fails with. */
int ko_wait_for_cause(const struct ko_waiter *waiter, int peer, int behind, const char *transport);

/* Compares the operation with the peer's of the same number, where that has posted one. KOLO_EMISMATCH. */
int ko_wait_compare(struct kolo_comm *comm, const struct ko_desc *desc, int peer);

/* A slot of `peer` carried the tag of another operation. Returns KOLO_EMISMATCH. */
int ko_wait_mismatch(struct kolo_comm *comm, const struct ko_desc *desc, int peer, uint32_t tag);

#endif
