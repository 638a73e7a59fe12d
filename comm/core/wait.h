/* Waiting for another rank. A rank that waits looks now and then whether the communicator has
 * failed, whether the other rank is in the same operation, whether all ranks live, and whether it
 * has waited too long. The error texts about other ranks are written here; ko_run_end passes them
 * to all ranks. */
#ifndef COMM_CORE_WAIT_H
#define COMM_CORE_WAIT_H

#include "comm/core/comm.h"

/* Has what is waited for happened? Returns 0, KO_EAGAIN (not yet) or an error. Never blocks. */
typedef int ko_try_fn(void *what);

/* Who waits: this rank, in an operation. */
struct ko_waiter {
	struct kolo_comm *comm;
	const struct ko_desc *desc; /* seq 0: the communicator is still being made */
	/* Does it still need `rank`? NULL: it needs every rank that has not finished the
	 * operation */
	bool (*needs)(const struct kolo_comm *c, int rank);
	int64_t since; /* not 0: waits are traced */
	bool lost;     /* a link has failed, and this wait is for the cause (ko_wait_for_cause) */
};

/* Blocks while try(what) returns KO_EAGAIN. Rank `peer` has to do something, through `transport`:
 * the error texts name both. `kind` is the trace's word for the wait. Errors: those of try;
 * KOLO_EMISMATCH, KOLO_EPEER, KOLO_ETIMEDOUT, or the cause of the communicator's failure. */
int ko_wait_for(const struct ko_waiter *waiter, int peer, const char *transport,
		enum ko_trace_kind kind, ko_try_fn *try, void *what);

/* The same, after a first try that returned KO_EAGAIN. It does not look again at once: each look
 * takes the cache line away from the rank that is about to write it. */
int ko_wait_longer(const struct ko_waiter *waiter, int peer, const char *transport,
		   enum ko_trace_kind kind, ko_try_fn *try, void *what);

/* How often a wait tries before it gives the core away, after `spins` tries and a yield of
 * `yield_ns`. A yield that took long enough for another thread's short turn shows that others poll
 * on this core too, though this host may not know them: then it is half as often. Otherwise it is
 * twice as often, up to `most`. If the other one used its whole turn, it waited for nobody. */
int ko_wait_spins(int spins, int most, int64_t yield_ns);

/* Returns 0 or the cause of the communicator's failure. If the ranks are on several hosts it first
 * reads, every 10 ms, what the other hosts have sent. Never blocks. */
int ko_wait_hear(struct kolo_comm *comm);

/* Before an operation. Returns the cause of the communicator's failure, KOLO_EPEER if a rank that
 * the operation needs has left or died, or 0. */
int ko_wait_health(struct kolo_comm *comm, const struct ko_desc *desc);

/* For a rank that tests instead of waiting: returns the cause of the communicator's failure,
 * KOLO_EPEER if a rank that it needs has left or died, or 0. Never blocks. */
int ko_wait_look(const struct ko_waiter *waiter);

/* Does the waiter still need the rank, as far as is known here? */
bool ko_wait_needs(const struct ko_waiter *waiter, int rank);

/* Waits for the cause of a link's failure. When a rank dies, the ranks next to it may see their
 * links fail before anybody reports the death, and the report has the better text: it names the
 * dead rank. `peer`, through `transport`, was waited for. `other` is the rank at the failed link's
 * other end. Waits up to 200 ms (1.5 s across hosts), and no longer than `other` is needed. Returns
 * an error of ko_wait_for, or 0: no cause became known. */
int ko_wait_for_cause(const struct ko_waiter *waiter, int peer, int other, const char *transport);

/* Compares the operation with the one of the same number that the peer has posted, if it has.
 * Errors: KOLO_EMISMATCH. */
int ko_wait_compare(struct kolo_comm *comm, const struct ko_desc *desc, int peer);

/* A slot or cell of `peer` carried the tag of another operation. Finds the first operation in which
 * the two ranks differ. Returns KOLO_EMISMATCH. Across hosts it blocks for up to a second. */
int ko_wait_mismatch(struct kolo_comm *comm, const struct ko_desc *desc, int peer, uint32_t tag);

#endif
