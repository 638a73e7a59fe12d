/* The algorithm "board": each rank writes once into its cell of the board (comm/memory/board.h),
 * and reads what it needs in the cells of others. That takes one turn, and the ring's all-reduce
 * 2(N-1) hops. */
#ifndef COMM_COLL_BOARD_H
#define COMM_COLL_BOARD_H

#include "comm/plan/algorithm.h"

extern const struct ko_algorithm_ops ko_board_ops;

/* The algorithm "slices": what does not fit into a turn goes over the board in several, and the
 * work of adding up is shared out. In a turn each rank gives a slice of its vector, and its part of
 * the sums of the slice before. */
extern const struct ko_algorithm_ops ko_slices_ops;

#endif
