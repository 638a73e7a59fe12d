/* An operation as its caller asks for it; the last one of each kind, which may come again; and those that are done later,
 * which are kept as a list. Doing it is in perform.c, and whether it is done now or later is decided in dispatch.c. */
#ifndef COMM_CORE_CALL_H
#define COMM_CORE_CALL_H

#include "comm/core/run.h"

struct ko_call {
	struct kolo_comm *comm;
	enum ko_coll coll;
	const void *src;
	void *dst;
	size_t n; /* of each rank's part; with counts: of this rank's part, where nothing else tells */
	enum kolo_type type;
	enum kolo_op op; /* KOLO_SUM where there is none */
	int root;        /* or the other rank of a send or recv; -1 where there is none */
	struct kolo_queue *queue;
	bool uneven; /* called with counts: */
	const size_t
		*counts; /* nranks of them, elements of each rank's part; NULL where this rank needs none */
	const size_t *received; /* all_to_all_v: of dst's parts; counts are of src's */
};

/* The last call of a collective that was done at once, and the run that was made of it, not begun. Programs repeat
 * themselves: what a call wants need not be checked and decided again. */
struct ko_known {
	struct ko_call call; /* comm NULL: there is none */
	struct ko_run run;
};

/* Is it the same call as the last one of its collective on this communicator, which this thread has claimed? */
bool ko_call_is_known(const struct ko_call *call);

/* What was decided may have to be decided otherwise. */
void ko_call_forget(struct kolo_comm *c);

/* Posts what all ranks have to do in the same place, like an operation, in which nobody waits. */
void ko_call_post(struct kolo_comm *c, enum ko_coll coll, uint64_t n);

/* A call that is done later, with copies of what need not last. */
struct ko_left {
	struct ko_left *next;
	struct ko_call call;
	struct ko_reducer red;
	size_t counts[];
};

/* Bytes of it, and the making of it in memory of so many. */
size_t ko_left_len(const struct ko_call *call);
void ko_left_init(struct ko_left *left, const struct ko_call *call);

/* There is none for such a call. Returns KOLO_ENOMEM. */
int ko_left_fail(const struct ko_call *call);

/* Are the arguments right? KOLO_EINVAL. */
int ko_call_check(const struct ko_call *call);

/* Where each rank's part begins, nranks + 1 of them, in comm->firsts. */
void ko_call_firsts(const struct ko_call *call, const size_t *counts);

#endif
