/* Which algorithm runs. All ranks use the same table, which rank 0 makes when the communicator is made; it is an
 * estimate of costs from what the links were measured to do, and pure arithmetic. */
#ifndef COMM_PLAN_ALGORITHM_H
#define COMM_PLAN_ALGORITHM_H

#include "comm/plan/coll.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ko_algorithm { KO_RING, KO_BOARD, KO_DIRECT, KO_EXCHANGE, KO_NALGORITHMS };

/* What the ring, the board and the system can do. */
struct ko_costs {
	double hop_ns;  /* of a small message from a rank to its next */
	double turn_ns; /* of one of everyone's on the board */
	double bytes_per_ns; /* of writing a message of some KiB, and of reading it then, in the mean of the edges */
	/* Of reading another rank's plain memory: a system call, and large pieces; 0: not all may */
	double read_ns, read_bytes_per_ns;
	bool crowded; /* there are more ranks than processors: who waits for another one waits for its turn there */
	bool network;           /* bytes are to go through links that are no shared memory */
	uint64_t exchange_room; /* bytes of a vector of which everyone can hold everyone's, */
	int64_t exchange_hops;  /* and hops until everyone does */
	uint64_t lane_bytes;    /* of a message between two ranks that the slots between them hold */
};

/* By bytes of the whole vector. */
struct ko_algorithms {
	/* Shorter vectors use the board, longer ones the ring, unless they are done directly */
	uint64_t board_end[KO_NCOLLS];
	/* Below it an exchange instead of the ring: all-reduces, and barriers; 0 for all others */
	uint64_t exchange_end[KO_NCOLLS];
	uint64_t read_begin[KO_NCOLLS];   /* from here on in any memory, UINT64_MAX: never; */
	uint64_t window_begin[KO_NCOLLS]; /* from here on in windows */
	/* A message between two ranks, from here on, is offered instead of put into slots: plain memory, windows */
	uint64_t rndv_begin, rndv_window_begin;
	bool must_read; /* where it may: the caller wants so */
};

/* Is it the name of one? "" is the best. */
int ko_algorithm_known(const char *name);

/* The table for nranks with cells of `room` bytes. `name` forces an algorithm where it can run: the board takes
 * what fits into a cell. */
void ko_algorithm_decide(const char *name, const struct ko_costs *costs, int nranks, size_t room,
			 struct ko_algorithms *out);

#endif
