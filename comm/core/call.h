/* A call: what the caller of a public operation asks for.
 *
 * This file has the arguments (struct ko_call) and the last call of each kind (struct ko_known).
 * comm/api/dispatch.c decides whether a call is done now or later (comm/core/left.h).
 * comm/api/perform.c does it. */
#ifndef COMM_CORE_CALL_H
#define COMM_CORE_CALL_H

#include "comm/core/run.h"

struct ko_call {
	struct kolo_comm *comm;
	enum ko_coll coll;
	const void *src;
	void *dst;
	/* Elements, as the public function counts them. gather_v, scatter_v: this rank's part;
	 * other _v: 0 */
	size_t n;
	enum kolo_type type;
	enum kolo_op op;          /* KOLO_SUM if the operation has none */
	int root;                 /* the root, or the peer of a send or recv; -1: neither */
	struct kolo_queue *queue; /* NULL: none */
	bool uneven;              /* a _v function was called */
	/* Elements of each rank's part, nranks numbers; NULL: not uneven, or this rank needs
	 * none */
	const size_t *counts;
	/* all_to_all_v: elements of dst's parts, while `counts` has those of src's; else NULL */
	const size_t *received;
};

/* What is fetched for writing before a call: the first line of this rank's cell on the board, and
 * `bytes` of its payload (comm/memory/board.h). */
struct ko_expected {
	bool used; /* false: nothing is fetched */
	size_t bytes;
};

/* The last call of a collective that was done at once. Programs repeat themselves: from the third
 * equal call on, it is not checked again and its run is not prepared again. If only type and op are
 * equal, what a reduction does is not looked up again. */
struct ko_known {
	struct ko_call call;     /* comm NULL: there is none */
	struct ko_reducer red;   /* of its type and op */
	bool prepared;           /* the rest is there: the call came twice */
	struct ko_expected cell; /* what is fetched, if the run needs this rank's cell */
	struct ko_run run;       /* prepared for the call, not begun */
};

/* Does the call equal the last one of its collective? The calling thread has claimed the
 * communicator (ko_run_claim). */
bool ko_call_is_known(const struct ko_call *call);

/* Forgets the last calls, because what was decided for them may no longer hold. */
void ko_call_forget(struct kolo_comm *c);

/* Posts kolo_alloc and its like in the roster as an operation that is begun and finished. It never
 * waits. All ranks call it at the same place in their order, with the same n. */
void ko_call_post(struct kolo_comm *c, enum ko_coll coll, uint64_t n);

/* Checks the arguments. Errors: KOLO_EINVAL. */
int ko_call_check(const struct ko_call *call);

/* One message of a call: this rank sends n elements to a rank, or receives them from there. */
struct ko_message {
	int peer; /* may be this rank; then another message is the other end */
	bool sends;
	enum kolo_type type;
	char *buffer; /* only read if it sends; may be NULL if n is 0 */
	size_t n;
};

/* Calls each(what, message) for all messages of a send, a recv, or a collective that consists of
 * messages: at most 2 * nranks. A root's part for itself is two messages. */
typedef void ko_message_fn(void *what, const struct ko_message *message);
void ko_call_messages(const struct ko_call *call, ko_message_fn *each, void *what);

/* Fills comm->firsts: the first element of each rank's part, then the end of the last part. counts
 * NULL: each part has call->n elements. */
void ko_call_firsts(const struct ko_call *call, const size_t *counts);

#endif
