/* The algorithm "grid": reductions and all-gathers in two levels, round each group and along each
 * rail of a shape (plan/shape.h). */
#ifndef COMM_COLL_GRID_H
#define COMM_COLL_GRID_H

#include "comm/core/run.h"

extern const struct ko_algorithm_ops ko_grid_ops;

/* Memory for the sums of KO_RAILS_DEPTH rounds, with a place for every group in each. */
struct ko_grid_room {
	char *sums;    /* NULL: an all-reduce's are in dst */
	size_t piece;  /* bytes of a block that move at a time, at most */
	size_t stride; /* bytes from place to place */
	size_t align; /* sums begin as far after a multiple of it as they do in an aligned vector */
	size_t slot_len; /* bytes of a slot of the group; 0: each slot has one piece */
};

/* Does all steps of a run one after the other, with run->moves->step: for moves that are recorded.
 * In their order no ranks wait for each other in a circle. The two rings have at least two slots.
 * Errors: those of the moves. */
int ko_grid_in_order(struct ko_run *run, const struct ko_grid_room *room, const void *src,
		     void *dst);

#endif
