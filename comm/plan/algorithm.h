/* What an algorithm is, and which one runs at which size. Rank 0 decides that once, when the
 * communicator is made, and all ranks use its table. The decision compares estimated times. It is
 * pure: numbers in, numbers out.
 *
 * An algorithm is a row of the table in comm/coll/algorithms.c. */
#ifndef COMM_PLAN_ALGORITHM_H
#define COMM_PLAN_ALGORITHM_H

#include "comm/plan/coll.h"
#include "comm/plan/plan.h"
#include "comm/plan/sums.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ko_run;

/* The rows of the table. They stand in the order of the sizes for which they are better: those with
 * the fewest hops first, except the ring. The ring does every collective at any size; of the other
 * orders KO_PAIRWISE and KO_GRID do every reduction. */
enum ko_algorithm {
	KO_RING,
	KO_BOARD,
	KO_SLICES,
	KO_EXCHANGE,
	KO_DOUBLING,
	KO_PARTIALS,
	KO_CENTER,
	KO_SHARES,
	KO_DIRECT,
	KO_PAIRWISE,
	KO_GRID,
	KO_NALGORITHMS
};

/* The row that does what no other does. */
static inline enum ko_algorithm ko_algorithm_rest(enum ko_coll coll, enum ko_sums sums)
{
	if (!ko_coll_reduces(coll) || sums == KO_SUMS_RING)
		return KO_RING;
	return sums == KO_SUMS_TREE ? KO_PAIRWISE : KO_GRID;
}

/* How long payloads are written on the board. Measured when the communicator is made (why: D190 in
 * comm/DECISIONS.md). */
enum ko_board_way {
	KO_BOARD_NARROW, /* into the fewest lines, which stay in the caches */
	/* Into so many that the reader's second-level cache has dropped them before they are
	 * written again: else each of them has to be taken away from it */
	KO_BOARD_WIDE,
	KO_BOARD_STREAMED, /* past the caches: each line that a core gets from another one's is
			      dear */
	KO_BOARD_WAYS
};

/* What was measured when the communicator was made. Times are in ns, rates in bytes per ns. */
struct ko_costs {
	double hop_ns; /* of a small message from a rank to its next */
	/* The same in all groups of the shape at a time, and of leaders alone from one group to
	 * the next. 0: there is nobody */
	double group_hop_ns, rail_hop_ns;
	double group_bytes_per_ns; /* of a longer message, in all groups at a time */
	double lone_bytes_per_ns;  /* of a message between leaders while all others wait */
	double turn_ns; /* of a turn on the board, in which every rank gives a small message */
	/* Of a message of some KiB that one rank writes and the next reads: the mean of the
	 * edges */
	double bytes_per_ns;
	double board_bytes_per_ns; /* the same of long payloads on the board; 0: not known */
	/* The same of payloads of some KiB, whose bytes cost more on some machines; 0: not known.
	 * It counts where plain memory could be read instead (why: D212 in comm/DECISIONS.md) */
	double board_few_bytes_per_ns;
	enum ko_board_way board_way; /* the one with which they cost least */
	/* Of reading another rank's plain memory: the system call, and the rate of large pieces.
	 * Rate 0: not every rank may */
	double read_ns, read_bytes_per_ns;
	/* Ranks of rank 0's host for each processor, at least 1. If it is more, a rank that waits
	 * gives its processor away. What was measured on one rank alone takes so many times as long
	 * when all ranks do it */
	double share;
	bool network;           /* all bytes are to go through links that are no shared memory */
	uint64_t board_room;    /* bytes that a rank can give in a turn on the board */
	uint64_t exchange_room; /* bytes of a vector of which every rank can hold everyone's */
	int64_t exchange_hops;  /* until every rank has everyone's vector */
	int64_t groups, rails;  /* of the shape (shape.h); 0: there is none */
	bool one_card;          /* rails go through the same one */
	/* Processors carry bytes between hosts, as with TCP. Of several messages to one rank half
	 * of the work is then done by their senders at the same time */
	bool by_processors;
	int64_t group;         /* ranks of a host that add up before hosts do (doubling.h) */
	uint64_t group_room;   /* bytes of a vector that can be added up so */
	uint64_t leaders_room; /* bytes of vectors that a leader of such a group can hold */
	uint64_t slot_bytes;   /* of the ring's links */
	/* Bytes of a message between two ranks that one slot between them holds, and all of them */
	uint64_t lane_slot_bytes, lane_bytes;
};

/* An estimated time in ns, as a line over the bytes of the whole vector. */
struct ko_estimate {
	double fixed, slope;
};

/* Between which ranks an algorithm is a choice. */
enum ko_reach {
	KO_ANYWHERE,
	KO_SHARED_MEMORY, /* it needs memory that all ranks share: they are on one host */
	KO_NETWORK,       /* it runs anywhere, and is better only if bytes go through a network */
};

/* One algorithm. Only `agree` may be NULL. */
struct ko_algorithm_ops {
	const char *name; /* for --algorithm and kolo_algorithm_get */
	const char *what; /* how data moves, in a line */
	unsigned sums;    /* the orders of additions that it realises, a bit for each ko_sums */
	enum ko_reach reach;

	/* For the decision: pure. `windows`: all buffers lie in windows (kolo_alloc), otherwise in
	 * any memory. */

	/* Vectors of fewer bytes than this can be done; 0: the collective cannot. A barrier has 0
	 * bytes. */
	uint64_t (*end)(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows);
	/* The time of a collective other than a barrier that can be done. */
	struct ko_estimate (*cost)(enum ko_coll coll, const struct ko_costs *costs, int nranks,
				   bool windows);

	/* For an operation under way: run.h. */

	/* Can it be done, besides its size? All ranks answer alike. */
	bool (*takes)(const struct ko_run *run);
	/* All ranks agree, in this operation, whether it can be done: it depends on where their
	 * buffers are. Returns 1 if so, 0 if another algorithm must do it, or an error of `run`.
	 * NULL: the size and `takes` alone decide. */
	int (*agree)(struct ko_run *run, const void *src, void *dst);
	/* Does all of the collective; src and dst are those of the public call. Blocks. Errors:
	 * those of ko_wait, and of links or system calls. */
	int (*run)(struct ko_run *run, const void *src, void *dst);
	/* Elements that this rank has sent and received, by formula; what is counted must be equal
	 * to it. */
	struct ko_model (*model)(const struct ko_run *run);
};

/* Sizes of the whole vector in bytes: begin <= size < end. None if begin == end. */
struct ko_sizes {
	uint64_t begin, end;
};

/* What was decided. */
struct ko_algorithms {
	/* Sizes for which a row runs, with buffers in any memory. Ranges may overlap: see
	 * ko_algorithm_decide */
	struct ko_sizes any[KO_NALGORITHMS][KO_NCOLLS];
	/* Sizes for which a row with `agree` is tried if all buffers may be in windows */
	struct ko_sizes windows[KO_NALGORITHMS][KO_NCOLLS];
	/* A message between two ranks is a rendezvous from so many bytes on, in plain memory and in
	 * windows. Shorter ones go through slots. UINT64_MAX: never */
	uint64_t rndv_begin, rndv_window_begin;
	/* An all_to_all, and a gather or scatter, of fewer bytes goes over the board; else an
	 * all_to_all of fewer bytes than the third goes through leaders (KO_SHARES). Longer ones
	 * consist of messages */
	uint64_t parts_end, rooted_end, led_end;
	/* The user named an algorithm that reads plain memory: it is read whenever that is
	 * possible */
	bool must_read;
};

/* Decides for nranks ranks that add in this order. `name` is that of a row, which then runs
 * wherever it can; "": the best one runs.
 *
 * A row with `agree` is tried first, in its ranges. After that the first of rows 1, 2, .. without
 * `agree` runs that has the size in its range and `takes` the operation. ko_algorithm_rest does
 * what is left; its range has all sizes. */
void ko_algorithm_decide(const struct ko_algorithm_ops *const table[KO_NALGORITHMS],
			 const char *name, const struct ko_costs *costs, int nranks,
			 enum ko_sums sums, struct ko_algorithms *out);

/* The bytes from which on a collective that consists of messages does not go over the board. */
static inline uint64_t ko_parts_end(const struct ko_algorithms *t, enum ko_coll coll)
{
	return coll == KO_ALL_TO_ALL ? t->parts_end : t->rooted_end;
}

static inline bool ko_sizes_have(struct ko_sizes range, uint64_t bytes)
{
	return bytes >= range.begin && bytes < range.end;
}

#endif
