/* The rounds of the ring. A round moves one slice of every block all the way round. */
#ifndef COMM_COLL_ROUNDS_H
#define COMM_COLL_ROUNDS_H

#include "comm/rings/moves.h"

/* Does one round. src and dst are those of the public call, and may be NULL if that allows it.
 * Errors: those of the run's moves. */
typedef int ko_round_fn(struct ko_run *run, size_t round, const void *src, void *dst);

/* By collective. */
extern ko_round_fn *const ko_rounds[KO_NCOLLS];

#endif
