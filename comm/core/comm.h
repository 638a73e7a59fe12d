/* A communicator: one rank's end of a ring, with all that it has. Functions here are in comm.c. */
#ifndef COMM_CORE_COMM_H
#define COMM_CORE_COMM_H

#include "comm/base/log.h"
#include "comm/base/trace.h"
#include "comm/bootstrap/boot.h"
#include "comm/health/bells.h"
#include "comm/health/lifeline.h"
#include "comm/health/roster.h"
#include "comm/plan/algorithm.h"
#include "comm/plan/plan.h"
#include "comm/plan/ring.h"
#include "comm/plan/shape.h"
#include "comm/plan/sums.h"
#include "comm/reduce/reduce.h"
#include "comm/sys/order.h"
#include "comm/sys/progress.h"
#include "comm/transport/link.h"

struct ko_board;
struct ko_rails;
struct ko_known;
struct ko_lanes;
struct ko_op;
struct ko_readable;
struct ko_bruck;
struct ko_tuning;
struct ko_windows;
struct kolo_mailbox;

/* What a communicator has for operations on streams. A larger struct in cuda/ begins with this. */
struct ko_attached {
	/* Frees it. Called when all that was recorded is done or, because the communicator failed,
	 * dropped */
	void (*close)(struct ko_attached *attached);
	uint64_t sent, received; /* payload bytes recorded */
};

/* What rank 0 has decided. Equal on all ranks. */
struct ko_agreed {
	struct ko_limits limits; /* of the ring */
	size_t slot_len; /* bytes, as asked for or chosen; links of a shape have less (rails.h) */
	/* Bytes of a packet between hosts (comm/transport/link.h); 0: slots of any length do */
	size_t packet;
	bool paced; /* some rank waits between its packets */
	struct ko_costs costs;
	struct ko_algorithms algorithms;
	enum ko_role slots_near; /* near which end of a link between NUMA nodes its slots lie */
};

/* Operations begun. */
struct ko_sequence {
	uint64_t seq;      /* number of the last one, from 1 */
	uint64_t history;  /* hash of all of them (ko_desc_history) */
	_Atomic bool busy; /* one is running; a second one is a user's error */
};

/* Operations finished. */
struct ko_counters {
	uint64_t ops[KO_NALGORITHMS]; /* collectives; a single rank's count as KO_RING */
	uint64_t p2p_ops;             /* messages, groups of them, and collectives made of them */
	struct ko_model model;        /* bytes that all of them should have moved, by formula */
	struct ko_model direct;       /* bytes written to and read from other ranks' buffers */
};

struct kolo_comm {
	int rank, nranks;
	int local_ranks;        /* of them on this rank's host */
	unsigned generation;    /* of the process that made it (comm/base/fork.h) */
	bool spread;            /* its ranks are on several hosts */
	bool traced;            /* each operation is logged or traced */
	struct ko_trace *trace; /* NULL: none */
	struct ko_log log;

	/* Operations */
	struct ko_order *order; /* of operations in queues and operations done at once */
	struct ko_sequence sequence;
	struct ko_counters counters;
	struct kolo_queue *worker;    /* does its share of groups (group.c); NULL: none yet */
	struct ko_attached *attached; /* NULL: no operation on a stream so far */
	struct ko_op *ops;            /* nops of them, made at run time (comm/core/ops.h) */
	int nops;

	/* Waiting */
	_Atomic int timeout_ms;      /* without progress; 0: never. Any thread may set it */
	int spins;                   /* tries before a wait gives the core away (ko_wait_spins) */
	double share;                /* ranks of this host for each processor, at least 1 */
	int most_spins;              /* 0: the share is more than 1 */
	int64_t yield_ns;            /* how long the core was given away the last time */
	int64_t looked_ms;           /* ko_now_ms() of the last look at the lifelines, if spread */
	struct ko_progress progress; /* of another library */
	/* What every wait does now and then, without blocking; NULL: nothing. An error ends the
	 * wait */
	int (*while_waiting)(struct kolo_comm *c);

	/* The other ranks */
	struct ko_agreed agreed;
	struct ko_entry *table; /* who they are, by rank */
	struct ko_ring ring;    /* their order in the ring */
	enum ko_sums sums;      /* the order in which their elements are added */
	struct ko_shape shape;  /* their groups, if sums is KO_SUMS_GRID */
	struct ko_edges edges;  /* the links of the ring; none if there is one rank */
	struct ko_bruck *bruck; /* links for Bruck's algorithm (comm/rings/bruck.h); NULL: none */
	struct ko_rails *rails; /* links of the shape (comm/rings/rails.h); NULL: none */
	struct ko_lifelines *lifelines;
	struct ko_roster *roster; /* shared by all ranks; if spread each rank has its own */
	struct ko_bells *bells;   /* shared by the ranks of this host */
	/* The parent's; its failure ends the making of this communicator. NULL: made, or no
	 * parent */
	const struct ko_roster *parent;
	struct kolo_mailbox *mailbox; /* that it belongs to (comm/mail/mail.h); NULL: none */
	size_t shared_len; /* bytes of roster and board, whole pages; near lanes follow */

	/* Parts, each declared in the header named here; one block with this struct (open.c) */
	struct ko_board *board;       /* comm/memory/board.h; if spread it has no cells */
	struct ko_windows *windows;   /* comm/memory/window.h */
	struct ko_readable *readable; /* comm/memory/cma.h */
	struct ko_lanes *lanes;       /* comm/p2p/lane.h */
	struct ko_tuning *tuning;     /* comm/core/learn.h */
	struct ko_known *known;       /* comm/core/call.h; KO_NKINDS of them */

	/* Memory */
	size_t memory;  /* bytes allocated for this struct and what every communicator has */
	size_t *firsts; /* nranks + 1, where parts of the operation under way begin (call.h) */
	char *scratch;  /* KO_SCRATCH bytes, for copies of other ranks' memory */
};

enum { KO_SCRATCH = 256 << 10 };

/* The milliseconds of a timeout as users give it; below 0: never. */
int ko_timeout_check(int64_t seconds, int *out_ms);

/* The order of additions that KOLO_ORDER names; "" if it is unset. Errors: KOLO_EINVAL, with the
 * variable and its value. */
int ko_comm_order_of_env(const char **out);

/* Refuses a child of fork. `function`: what it called, for the error text. Errors: KOLO_EINVAL. */
int ko_comm_check_process(const struct kolo_comm *c, const char *function);

/* Is `rank` on this rank's host? */
bool ko_comm_is_here(const struct kolo_comm *c, int rank);

/* Writes "rank 2 (pid 712 on host)". Returns out. */
enum { KO_RANK_TEXT = 112 };
const char *ko_comm_name(const struct kolo_comm *c, int rank, char out[KO_RANK_TEXT]);

/* Fails the communicator on all ranks. If it has failed already, the first cause stays. Returns the
 * code of the cause and makes its text the thread's error. From any thread. */
int ko_comm_fail(struct kolo_comm *c, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
