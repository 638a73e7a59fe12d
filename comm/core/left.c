/* Copies a call with what its caller may change or free (ko_left_init). */
#include "comm/core/left.h"

#include "comm/base/error.h"
#include "comm/core/ops.h"

#include <string.h>

/* Copies the counts into *room, and moves that on. */
static const size_t *keep_counts(size_t **room, const size_t *counts, int nranks)
{
	size_t *copy = *room;

	if (!counts)
		return NULL;
	memcpy(copy, counts, (size_t)nranks * sizeof(*counts));
	*room += nranks;
	return copy;
}

size_t ko_left_len(const struct ko_call *call)
{
	size_t ncounts = (size_t)(!!call->counts + !!call->received) * (size_t)call->comm->nranks;

	return sizeof(struct ko_left) + ncounts * sizeof(size_t);
}

void ko_left_init(struct ko_left *left, const struct ko_call *call)
{
	size_t *room = left->counts;

	left->next = NULL;
	left->call = *call;
	left->call.counts = keep_counts(&room, call->counts, call->comm->nranks);
	left->call.received = keep_counts(&room, call->received, call->comm->nranks);
	left->red = ko_coll_is_p2p(call->coll) ? (struct ko_reducer){ 0 }
					       : ko_op_reducer(call->comm, call->op, call->type);
	if (left->red.how == KO_MADE) {
		left->made = *left->red.s.made;
		left->red.s.made = &left->made;
	}
}

int ko_left_fail(const struct ko_call *call)
{
	return ko_fail(KOLO_ENOMEM, "rank %d: kolo_%s: no memory for a call that is done later",
		       call->comm->rank, ko_coll_name((int)call->coll));
}
