/* What the files of tensor parallelism share: the group, its segments, and sums over both. */
#ifndef ZERO_PARALLEL_TP_H
#define ZERO_PARALLEL_TP_H

#include "kolo/kolo_parallel.h"

#include <stdbool.h>

struct kolo_tp {
	struct kolo_tp_config config;
	struct kolo_comm *comm; /* NULL: alone */
	size_t size, rank;      /* T, and of T */
	size_t elem;            /* bytes of an element */
	/* config.segments / size: this rank's, whose sums it adds up itself. 1 if there are no
	 * segments */
	size_t segments;
	char *sums; /* of segments, or of the rows of a cross-entropy: grows to what was needed */
	size_t sums_len;
	struct kolo_tp_report report;
};

/* Room for at least `len` bytes in tp->sums. If there is none the group is aborted, so that nobody
 * waits for this rank. */
int zero_tp_room(struct kolo_tp *tp, size_t len);

/* Adds up `count` vectors of n elements, each behind the other, as a binary tree: a power of two.
 * The first one becomes the sum. type: KOLO_F32 or KOLO_F64. */
void zero_tp_fold(enum kolo_type type, void *sums, size_t count, size_t n);

/* Adds up x [n] over the group, in place. Without a group it does nothing. */
int zero_tp_all_reduce(struct kolo_tp *tp, void *x, size_t n, enum kolo_type type, enum kolo_op op);

/* a += b. */
void zero_tp_add(enum kolo_type type, void *a, const void *b, size_t n);

#endif
