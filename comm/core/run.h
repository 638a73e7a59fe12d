/* One operation under way on one rank. */
#ifndef COMM_CORE_RUN_H
#define COMM_CORE_RUN_H

#include "comm/core/wait.h"

#include <string.h>

struct ko_moves;
struct ko_sample;

/* How ranks get at each other's buffers. */
enum ko_way { KO_NO_WAY, KO_BY_CMA, KO_BY_WINDOW };

struct ko_run {
	struct kolo_comm *comm;
	struct ko_desc desc;
	uint32_t tag;                  /* of the history up to desc; every slot and every cell carries it */
	size_t size;                   /* bytes of an element */
	ko_fill_fn *copy;              /* for this type */
	enum ko_stores stores;         /* for what goes to dst */
	size_t written;                /* bytes that go there and were not read just before */
	bool in_place, giver_in_place; /* for this rank; for root of a broadcast, or who decides (learn.h) */
	/* What is learnt of it, NULL where nothing is, and then when it began */
	struct ko_sample *writing, *reading;
	int64_t began_ns;
	struct ko_reducer red; /* what reductions do, barrier's empty one included */
	struct ko_plan plan;
	const struct ko_moves *moves; /* that its rounds are made of */
	enum ko_algorithm algorithm;  /* what it is done with: KO_DIRECT when that is sure, */
	bool offers;                  /* for that is tried, */
	bool may_read;                /* in plain memory too */
	enum ko_way way;              /* how it was done directly */
	/* In plain memory: root of a broadcast writes a share to each of the others, or each rank adds up a share of a reduce */
	bool shared;
	const char *vector; /* this rank's, of those that all fill; NULL: there are none */
	int64_t since;      /* when it began; 0: nobody wants to know */
	/* Does it still wait for `rank`? NULL: for all that have not finished it */
	bool (*needs)(const struct kolo_comm *c, int rank);
};

/* Makes the communicator this thread's until ko_run_end. KOLO_EINVAL where another one is in an operation. */
int ko_run_claim(struct kolo_comm *c, enum ko_coll coll);

/* What was claimed is free again; ko_run_end does it, too. */
static inline void ko_run_release(struct kolo_comm *c)
{
	atomic_store_explicit(&c->sequence.busy, false, memory_order_release);
}

/* The operation desc of run->comm, which gets its number and its tag, begins: afterwards every rank knows what this one
 * is about to do. What ranks do in pairs has no number. Errors: what the communicator has failed with; KOLO_EPEER. */
int ko_run_begin(struct ko_run *run);

/* It is over, with `rc`. Whatever it fails with, the others learn it: a failed communicator stays failed everywhere. */
int ko_run_end(struct ko_run *run, int rc);

/* The operation as one that waits, as long as it stays where it is. */
static inline struct ko_waiter ko_run_waiter(const struct ko_run *run)
{
	return (struct ko_waiter){
		.comm = run->comm, .desc = &run->desc, .needs = run->needs, .since = run->since
	};
}

/* ko_wait_for in the operation. */
static inline int ko_wait(const struct ko_run *run, int peer, const char *transport, enum ko_trace_kind kind,
			  ko_try_fn *try, void *what)
{
	const struct ko_waiter waiter = ko_run_waiter(run);

	return ko_wait_for(&waiter, peer, transport, kind, try, what);
}

/* dst = len bytes that belong there, with the operation's stores. */
static inline void ko_run_copy(const struct ko_run *run, void *dst, const void *src, size_t len)
{
	if (run->stores == KO_STREAMING)
		ko_stream_copy(dst, src, len);
	else
		memcpy(dst, src, len);
}

/* Element `element` of a buffer, which may be NULL where nothing is read or written. */
static inline const void *ko_at(const struct ko_run *run, const void *base, size_t element)
{
	return base ? (const char *)base + element * run->size : NULL;
}

static inline void *ko_at_mut(const struct ko_run *run, void *base, size_t element)
{
	return base ? (char *)base + element * run->size : NULL;
}

#endif
