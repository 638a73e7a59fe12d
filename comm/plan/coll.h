/* The kinds of operations on a communicator, and what follows from a kind alone: its name, whether
 * it has an op or a root, whether it is made of messages. Pure: no state, no communicator. */
#ifndef COMM_PLAN_COLL_H
#define COMM_PLAN_COLL_H

#include <stdbool.h>

enum ko_coll {
	KO_BARRIER,
	KO_BROADCAST,
	KO_REDUCE,
	KO_ALL_REDUCE,
	KO_REDUCE_SCATTER,
	KO_ALL_GATHER,
	KO_NCOLLS,
	/* not collectives, but posted like them: kolo_alloc, kolo_free and so on */
	KO_ALLOC = KO_NCOLLS,
	KO_FREE,
	KO_REGISTER,
	KO_DEREGISTER,
	KO_ALL_TO_ALL, /* collectives that consist of messages between pairs of ranks */
	KO_GATHER,
	KO_SCATTER,
	KO_SEND_TO, /* known to the ranks that take part only */
	KO_RECV_FROM,
	KO_GROUP,
	KO_NKINDS,
};

/* The name, for example "all_reduce". "unknown" for a number that is no kind. */
const char *ko_coll_name(int coll);

/* Does it have an op? */
static inline bool ko_coll_reduces(int coll)
{
	return coll == KO_REDUCE || coll == KO_ALL_REDUCE || coll == KO_REDUCE_SCATTER;
}

/* Does it have a root? */
static inline bool ko_coll_has_root(int coll)
{
	return coll == KO_BROADCAST || coll == KO_REDUCE || coll == KO_GATHER || coll == KO_SCATTER;
}

/* Is it done by pairs of ranks: a message, a group, or a collective that consists of messages? */
static inline bool ko_coll_is_p2p(enum ko_coll coll)
{
	return coll >= KO_ALL_TO_ALL;
}

/* Is it one message? */
static inline bool ko_coll_is_message(enum ko_coll coll)
{
	return coll == KO_SEND_TO || coll == KO_RECV_FROM;
}

/* Is it a collective that consists of messages? */
static inline bool ko_coll_has_messages(enum ko_coll coll)
{
	return coll >= KO_ALL_TO_ALL && coll <= KO_SCATTER;
}

#endif
