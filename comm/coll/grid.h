/* The algorithm "grid": reductions and all-gathers in two levels, round each group and along each
 * rail of a shape (plan/shape.h). */
#ifndef COMM_COLL_GRID_H
#define COMM_COLL_GRID_H

#include "comm/core/run.h"

extern const struct ko_algorithm_ops ko_grid_ops;

#endif
