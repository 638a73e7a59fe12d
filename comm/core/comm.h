/* A communicator: one rank's end of a ring. */
#ifndef COMM_CORE_COMM_H
#define COMM_CORE_COMM_H

#include "comm/base/log.h"
#include "comm/base/trace.h"
#include "comm/bootstrap/boot.h"
#include "comm/health/lifeline.h"
#include "comm/health/roster.h"
#include "comm/plan/algorithm.h"
#include "comm/plan/plan.h"
#include "comm/plan/ring.h"
#include "comm/reduce/reduce.h"
#include "comm/sys/order.h"
#include "comm/transport/link.h"

struct ko_board;
struct ko_known;
struct ko_lanes;
struct ko_premul;
struct ko_readable;
struct ko_bruck;
struct ko_tuning;
struct ko_windows;

/* What operations with a queue that is a stream need of a communicator. */
struct ko_attached {
	/* Frees it, when what was recorded is done, or dropped because the communicator has failed */
	void (*close)(struct ko_attached *attached);
	uint64_t sent, received; /* payload recorded */
};

/* Equal on all ranks, as rank 0 says or has decided. */
struct ko_agreed {
	struct ko_limits limits;
	struct ko_costs costs;
	struct ko_algorithms algorithms;
	enum ko_role slots_near; /* which end of a link the slots lie near, if that makes a difference */
};

/* Operations begun. */
struct ko_sequence {
	uint64_t seq;      /* their number, */
	uint64_t history;  /* and all of them in one number */
	_Atomic bool busy; /* one is running; a second one is a user's error */
};

/* Operations finished. */
struct ko_counters {
	uint64_t ops[KO_NALGORITHMS]; /* collectives; with one rank, which needs none, as if round the ring */
	uint64_t p2p_ops;             /* those between pairs of ranks */
	struct ko_model model;        /* bytes that they should have moved */
	struct ko_model direct;       /* bytes read in other ranks' buffers, and written */
};

struct kolo_comm {
	int rank, nranks;
	bool spread;            /* its ranks are on several hosts */
	bool traced;            /* each operation is logged or traced */
	struct ko_trace *trace; /* NULL: none */
	struct ko_log log;

	/* Operations */
	struct ko_order *order; /* of those in queues and those that are done at once */
	struct ko_sequence sequence;
	struct ko_counters counters;
	struct kolo_queue *worker;    /* for what a group leaves to another thread; NULL: none needed yet */
	struct ko_attached *attached; /* NULL: there has been none with a stream */
	struct ko_premul *premuls;    /* npremuls of them */
	int npremuls;

	/* Waiting */
	int timeout_ms;    /* without progress; 0: never */
	int spins;         /* tries before a wait gives the core away */
	int64_t looked_ms; /* ko_now_ms() of the last look at the lifelines, when spread */
	/* What else it does from time to time, without blocking; NULL: nothing. 0, or an error that ends the wait */
	int (*while_waiting)(struct kolo_comm *c);

	/* The other ranks */
	struct ko_agreed agreed;
	struct ko_entry *table; /* who they are, by rank */
	struct ko_ring ring;    /* and how they stand in it */
	struct ko_edges edges;  /* of the ring; no links when there is one rank */
	struct ko_bruck *bruck; /* NULL: there are none */
	struct ko_lifelines *lifelines;
	/* Shared by all ranks, with the board behind it; of a spread one each rank has its own, and no board */
	struct ko_roster *roster;
	const struct ko_roster *parent; /* while this one is made: whose failure ends that; NULL: none */
	size_t shared_len;              /* bytes of both, whole pages; behind them come the lanes */

	/* Parts, each declared where its functions are; in one block with this (open.c) */
	struct ko_board *board;       /* board.h */
	struct ko_windows *windows;   /* window.h */
	struct ko_readable *readable; /* peer.h */
	struct ko_lanes *lanes;       /* lane.h */
	struct ko_tuning *tuning;     /* learn.h */
	struct ko_known *known;       /* KO_NKINDS of them; call.h */

	/* Memory */
	size_t memory;  /* bytes allocated for it and what it always has */
	size_t *firsts; /* nranks + 1, of the uneven blocks of the operation under way */
	char *scratch;  /* KO_SCRATCH bytes, for what is read of other ranks' memory */
};

enum { KO_SCRATCH = 256 << 10 };

/* kolo_op values from here on index premuls. */
enum { KO_OP_FIRST = 0x1000 };

/* The reducer of an op made at run time for `type`, NULL when there is none. */
const struct ko_reducer *ko_comm_premul(const struct kolo_comm *c, enum kolo_op op, enum kolo_type type);

/* What an op does to elements of `type`, of those made at run time as it is now. */
struct ko_reducer ko_comm_reducer(const struct kolo_comm *c, enum kolo_op op, enum kolo_type type);

/* "rank 2 (pid 712 on host)". Returns out. */
enum { KO_RANK_TEXT = 112 };
const char *ko_comm_name(const struct kolo_comm *c, int rank, char out[KO_RANK_TEXT]);

/* Fails the communicator on all ranks; the first cause stays. Returns its code, with its text as the thread's
 * error. From any thread. */
int ko_comm_fail(struct kolo_comm *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
