/* See call.h. */
#include "collectives.h"
#include "group.h"
#include "pairs.h"
#include "queue.h"

#include <stdlib.h>
#include <string.h>

bool ko_call_is_known(const struct ko_call *call)
{
	const struct ko_call *last = &call->comm->known[call->coll].call;

	return last->comm && last->src == call->src && last->dst == call->dst && last->n == call->n &&
	       last->type == call->type && last->op == call->op && last->root == call->root &&
	       last->uneven == call->uneven;
}

void ko_call_forget(struct kolo_comm *c)
{
	for (int coll = 0; coll < KO_NKINDS; coll++)
		c->known[coll].call.comm = NULL;
}

void ko_call_firsts(const struct ko_call *call, const size_t *counts)
{
	size_t *firsts = call->comm->firsts, sum = 0;

	for (int r = 0; r < call->comm->nranks; r++) {
		firsts[r] = sum;
		sum += counts ? counts[r] : call->n;
	}
	firsts[call->comm->nranks] = sum;
}

int ko_call_perform(const struct ko_call *call, const struct ko_reducer *red)
{
	if (call->queue && call->queue->stream)
		return call->queue->stream->record(call->queue, call, red);
	return ko_is_pairs(call->coll) ? ko_pairs(call) : ko_collective(call, red);
}

int ko_call_wait_turn(struct kolo_comm *c, uint64_t place)
{
	int rc = 0;

	while (rc == 0 && !ko_order_wait(c->order, place))
		rc = ko_roster_cause(c->roster);
	return rc;
}

void ko_call_post(struct kolo_comm *c, enum ko_coll coll, uint64_t n)
{
	const struct ko_desc desc = { .seq = ++c->seq, .n = n, .root = -1, .coll = (uint8_t)coll };

	c->history = ko_desc_history(c->history, &desc);
	ko_roster_enter(c->roster, c->rank, &desc);
	ko_roster_finish(c->roster, c->rank, desc.seq);
}

/* ---- Later ---------------------------------------------------------------------------------------------- */

/* A copy of the counts, behind what was copied before. */
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
	left->red = ko_is_pairs(call->coll) ? (struct ko_reducer){ 0 }
					    : ko_comm_reducer(call->comm, call->op, call->type);
}

int ko_left_fail(const struct ko_call *call)
{
	return ko_fail(KOLO_ENOMEM, "rank %d: kolo_%s: no memory for a call that is done later",
		       call->comm->rank, ko_coll_name((int)call->coll));
}

/* What a queue has to do. */
struct work {
	struct ko_left *left;
	uint64_t place; /* in the communicator's order */
};

_Static_assert(sizeof(struct work) <= KO_WORK_ARG, "an item of a queue has room for a call");

/* A queue has come to it. */
static int perform_in_turn(void *arg)
{
	const struct work *w = arg;
	struct kolo_comm *c = w->left->call.comm;
	int rc = ko_call_wait_turn(c, w->place);

	if (rc == 0)
		rc = ko_call_perform(&w->left->call, &w->left->red);
	ko_order_serve(c->order);
	free(w->left);
	return rc;
}

static int enqueue(const struct ko_call *call)
{
	struct ko_order *order = call->comm->order;
	const struct work w = { malloc(ko_left_len(call)), order->issued + 1 };
	int rc;

	if (!w.left)
		return ko_left_fail(call);
	ko_left_init(w.left, call);
	rc = ko_queue_put(call->queue, perform_in_turn, &w, sizeof(w));
	if (rc == 0)
		order->issued++;
	else
		free(w.left);
	return rc;
}

/* ---- Now, or then --------------------------------------------------------------------------------------- */

static bool is_for_itself(const struct ko_call *call)
{
	return ko_coll_is_message(call->coll) && call->root == call->comm->rank;
}

/* A collective that waits for nothing is checked where it begins, if it must be. */
static bool is_for_now(const struct ko_call *call)
{
	bool collective = call->coll < KO_NCOLLS || ko_coll_has_messages(call->coll);

	return call->comm && collective && !call->queue && !ko_group_is_open() &&
	       ko_order_is_settled(call->comm->order);
}

int ko_call_do(const struct ko_call *call)
{
	int rc;

	if (is_for_now(call))
		return ko_is_pairs(call->coll) ? ko_pairs_now(call) : ko_collective(call, NULL);
	rc = ko_call_check(call);
	if (rc < 0)
		return rc;
	if (ko_group_is_open())
		return ko_group_add(call);
	if (is_for_itself(call))
		return ko_fail(
			KOLO_EINVAL,
			"rank %d: kolo_%s: peer %d is this rank itself: want its other end in the same "
			"group (kolo_group_begin)",
			call->comm->rank, ko_coll_name((int)call->coll), call->root);
	if (!ko_queue_is_now(call->queue))
		return enqueue(call);
	if (!ko_order_is_settled(call->comm->order) && !call->comm->order->in_turn)
		rc = ko_call_wait_turn(call->comm, call->comm->order->issued + 1);
	return rc < 0 ? rc : ko_call_perform(call, NULL);
}
