/* A communicator: one rank's end of a ring. */
#ifndef KO_COMM_H
#define KO_COMM_H

#include "algorithm.h"
#include "board.h"
#include "boot.h"
#include "lane.h"
#include "lifeline.h"
#include "link.h"
#include "log.h"
#include "mem.h"
#include "order.h"
#include "roster.h"
#include "trace.h"
#include "window.h"

/* An op made at run time; type is -1 while the place is free. */
struct ko_premul {
	int type;
	struct ko_reducer red;
};

/* What operations of one collective and class of sizes have cost when done in one of two ways; see learn.h. */
struct ko_trial {
	uint32_t count;
	float ns_per_byte[2]; /* 0: not known */
};

enum { KO_TRIALS = 20 };

/* Bytes of this rank's memory. */
struct ko_range {
	uint64_t first, len;
};

enum { KO_OFFERED = 4 };

/* How ranks get at each other's buffers. */
enum ko_way { KO_NO_WAY, KO_BY_READING, KO_BY_WINDOW };

/* What operations with a queue that is a stream need of a communicator. */
struct ko_attached {
	/* Frees it, when what was recorded is done, or dropped because the communicator has failed */
	void (*close)(struct ko_attached *attached);
	uint64_t sent, received; /* payload recorded */
};

struct kolo_comm {
	int rank, nranks;
	struct ko_log log;
	struct ko_trace *trace; /* NULL: none */
	bool told;              /* each operation is logged or traced */
	int timeout_ms;         /* without progress; 0: never */
	struct ko_order *order; /* of operations in queues and those that are done at once */
	_Atomic bool busy;      /* an operation is running; a second one is a user's error */
	uint64_t seq;           /* operations begun, */
	uint64_t history;       /* and all of them in one number */
	uint64_t ops
		[KO_NALGORITHMS]; /* operations finished; with one rank, which needs none, as if round the ring */
	uint64_t pair_ops;        /* the same of those between pairs of ranks */
	struct ko_model model; /* bytes that they should have moved */
	int spins;             /* tries before a wait gives the core away */
	/* What else it does from time to time, without blocking; NULL: nothing. 0, or an error that ends the wait */
	int (*while_waiting)(struct kolo_comm *c);
	struct ko_limits limits; /* agreed */
	struct ko_entry *table;  /* who the ranks are, by rank */
	struct ko_ring ring;     /* and how they stand in it */
	struct ko_lifelines *lifelines;
	bool spread;   /* its ranks are on several hosts: */
	int64_t heard; /* then ko_now_ms() of the last look at the lifelines */
	/* Shared by all ranks, with the board behind it; of a spread one each rank has its own, and no board */
	struct ko_roster *roster;
	const struct ko_roster *parent; /* while this one is made: whose failure ends that; NULL: none */
	size_t shared_len;              /* bytes of both, whole pages; behind them come the lanes */
	struct ko_board board;
	struct ko_lanes lanes;
	struct ko_transfer *transfers; /* of the operation under way; transfers_room of them at most */
	size_t transfers_room;
	struct kolo_queue *worker; /* for what a group leaves to another thread; NULL: none needed yet */
	enum ko_role
		slots_near; /* which end of a link the slots lie near, where that makes a difference; agreed */
	struct ko_costs costs;           /* likewise */
	struct ko_algorithms algorithms; /* likewise */
	/* Round the ring, and in windows: with ordinary or with streaming stores */
	struct ko_trial writing[2][KO_NKINDS][KO_TRIALS];
	/* Out of place, and in: round the ring, or in slots of a lane, or directly */
	struct ko_trial reading[KO_NKINDS][2][KO_TRIALS];
	struct ko_link *to_next, *from_prev; /* NULL when there is one rank */
	struct ko_shortcuts *shortcuts;      /* NULL: there are none */
	struct ko_premul *premuls;           /* npremuls of them */
	int npremuls;
	struct ko_window *windows; /* nwindows of them */
	int nwindows;
	uint32_t last_window;                /* its id */
	struct ko_model direct;              /* bytes read in other ranks' buffers, and written */
	struct ko_range offered[KO_OFFERED]; /* that others can read, the last noffered asked for */
	unsigned noffered;
	struct ko_attached *attached; /* NULL: there has been none with a stream */
	struct ko_known *known;       /* KO_NKINDS of them */
	size_t *firsts;               /* nranks + 1, of the uneven blocks of the operation under way */
	char *scratch;                /* KO_SCRATCH bytes, for what is read of other ranks' memory */
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
