/* A run: one operation under way on one rank, from ko_run_claim to ko_run_end. */
#ifndef COMM_CORE_RUN_H
#define COMM_CORE_RUN_H

#include "comm/core/wait.h"

#include <string.h>

struct ko_moves;
struct ko_sample;

/* How ranks get at each other's buffers, if they do. */
enum ko_way {
	KO_NO_WAY,
	KO_BY_CMA,    /* the kernel copies (comm/memory/cma.h) */
	KO_BY_WINDOW, /* they lie in memory from kolo_alloc (comm/memory/window.h) */
};

struct ko_run {
	struct kolo_comm *comm;
	struct ko_desc desc;
	uint32_t tag;          /* of the history up to desc; in all its slots and cells */
	enum ko_stores stores; /* for what goes to dst */
	size_t size;           /* bytes of an element */
	ko_fill_fn *copy;      /* for this type */
	size_t written;        /* bytes that go to dst and were not read just before */
	struct ko_reducer red; /* what a reduction does; a barrier's is empty */
	struct ko_plan plan;
	const struct ko_moves *moves; /* what its rounds are made of (comm/rings/moves.h) */
	struct ko_model model;        /* elements that `algorithm` moves */
	enum ko_algorithm algorithm;  /* what does it; if `tried` is agreed on, that is put here */
	enum ko_algorithm tried;      /* if `offers` */
	enum ko_way way; /* how KO_DIRECT, or rendezvous in plain memory, gets at buffers */
	int decider;     /* the rank that decides on CMA for all (learn.h) */
	/* A collective: the ranks offer their buffers and try to agree on `tried`. Messages: plain
	 * memory goes by rendezvous */
	bool offers;
	bool by_link;  /* messages: long ones may go through slots of the ring's links */
	bool may_read; /* a collective: `tried` may read plain memory, too */
	/* By CMA: the root of a broadcast writes a share to each rank, or each rank adds up a share
	 * of a reduce */
	bool shared;
	bool in_place;       /* for this rank */
	bool giver_in_place; /* for the root of a broadcast; else for the decider (learn.h) */

	/* Tuning (learn.h). What is known of this kind and size of operation, two samples each:
	 * of stores by ring and by windows, of CMA out of place and in place */
	struct ko_sample *writings, *readings;
	struct ko_sample *writing; /* where the time counts for stores; NULL: nowhere */
	struct ko_sample *reading; /* where the time counts for CMA; NULL: nowhere */
	int64_t began_ns;          /* ko_now_ns() of the beginning, if one of them is set */

	const char *vector; /* this rank's, if the link from prev may fill it; NULL: none */
	int64_t since;      /* ko_now_ns() of the beginning; 0: it is neither logged nor traced */
	/* Does it still need `rank`? NULL: it needs every rank that has not finished it */
	bool (*needs)(const struct kolo_comm *c, int rank);
};

/* Claims the communicator for this thread until ko_run_end or ko_run_release. Errors: KOLO_EINVAL
 * if another thread is in an operation. */
int ko_run_claim(struct kolo_comm *c, enum ko_coll coll);

/* Gives up the claim. ko_run_end does that, too. */
static inline void ko_run_release(struct kolo_comm *c)
{
	atomic_store_explicit(&c->sequence.busy, false, memory_order_release);
}

/* Begins the collective run->desc: it gets its number and tag, and is posted in the roster, so that
 * every rank can see what this one does. Errors: the cause of the communicator's failure;
 * KOLO_EPEER. */
int ko_run_begin(struct ko_run *run);

/* Begins a message or a group of messages. It has no number, and is not posted. Errors: the cause
 * of the communicator's failure. */
int ko_run_begin_p2p(struct ko_run *run);

/* Ends the operation, which returned `rc`, and the claim. After an error the communicator has
 * failed on all ranks. Returns 0 or the code of the cause. */
int ko_run_end(struct ko_run *run, int rc);

/* ko_wait_longer, for an operation. */
int ko_run_wait_longer(const struct ko_run *run, int peer, const char *transport,
		       enum ko_trace_kind kind, ko_try_fn *try, void *what);

/* The waiter (wait.h) of an operation. It points into *run. */
static inline struct ko_waiter ko_run_waiter(const struct ko_run *run)
{
	return (struct ko_waiter){
		.comm = run->comm, .desc = &run->desc, .needs = run->needs, .since = run->since
	};
}

/* ko_wait_for, for an operation. The first try is inline: often there is nothing to wait for. */
static inline int ko_wait(const struct ko_run *run, int peer, const char *transport,
			  enum ko_trace_kind kind, ko_try_fn *try, void *what)
{
	int rc = try(what);

	return rc == KO_EAGAIN ? ko_run_wait_longer(run, peer, transport, kind, try, what) : rc;
}

/* Copies len bytes of a result to dst, with the operation's stores. */
static inline void ko_run_copy(const struct ko_run *run, void *dst, const void *src, size_t len)
{
	ko_stores_copy(run->stores, dst, src, len);
}

/* What a loop needs for elements of another rank, whose cell on the board has `theirs`: a factor
 * may differ from rank to rank, but a function of the program is called with this rank's argument.
 */
static inline const union ko_scalar *ko_run_scalar(const struct ko_run *run,
						   const union ko_scalar *theirs)
{
	return run->red.how == KO_MADE ? &run->red.s : theirs;
}

/* The address of an element of a buffer. base NULL: NULL, since nothing is read or written
 * there. */
static inline const void *ko_at(const struct ko_run *run, const void *base, size_t element)
{
	return base ? (const char *)base + element * run->size : NULL;
}

static inline void *ko_at_mut(const struct ko_run *run, void *base, size_t element)
{
	return base ? (char *)base + element * run->size : NULL;
}

#endif
