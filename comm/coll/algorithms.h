/* The algorithms of collectives. A new one is a file with its row, a name in enum ko_algorithm, and
 * a line in the table of algorithms.c. What a row has is in comm/plan/algorithm.h. */
#ifndef COMM_COLL_ALGORITHMS_H
#define COMM_COLL_ALGORITHMS_H

#include "comm/plan/algorithm.h"

extern const struct ko_algorithm_ops *const ko_algorithm_table[KO_NALGORITHMS];

/* The row called `name`; NULL for "", which is the best for each size. Errors: KOLO_ENOTSUP, with
 * the names that there are. */
int ko_algorithm_find(const char *name, const struct ko_algorithm_ops **out);

#endif
