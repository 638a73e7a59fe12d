/* The algorithm "board": each rank writes once into its cell of the board (comm/memory/board.h),
 * and reads what it needs in the cells of others. That takes one turn, and the ring's all-reduce
 * 2(N-1) hops. */
#ifndef COMM_COLL_BOARD_H
#define COMM_COLL_BOARD_H

#include "comm/plan/algorithm.h"

extern const struct ko_algorithm_ops ko_board_ops;

#endif
