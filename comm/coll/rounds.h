/* One round of each collective: one slice of every block, all the way round. */
#ifndef COMM_COLL_ROUNDS_H
#define COMM_COLL_ROUNDS_H

#include "comm/coll/moves.h"

/* src and dst as the public call has them; src may be NULL where the call allows it, and dst likewise. */
typedef int ko_round_fn(struct ko_run *run, size_t round, const void *src, void *dst);

extern ko_round_fn *const ko_rounds[KO_NCOLLS];

#endif
