/* Decides whether a call is done now, or left to a queue or group (ko_call_do). */
#include "comm/api/dispatch.h"

#include "comm/api/group.h"
#include "comm/api/perform.h"
#include "comm/coll/collectives.h"
#include "comm/core/left.h"
#include "comm/p2p/p2p.h"
#include "comm/sys/queue.h"

#include <stdlib.h>

/* ---- Later ----------------------------------------------------------------------------------- */

/* An item of a queue: a call and its turn. */
struct work {
	struct ko_left *left;
	uint64_t place; /* in the communicator's order */
};

_Static_assert(sizeof(struct work) <= KO_WORK_ARG, "an item of a queue has room for a call");

/* The queue has come to the item: waits for its turn and does it. */
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

/* ---- Now or later ---------------------------------------------------------------------------- */

/* Is it a message of this rank to itself? */
static bool is_for_itself(const struct ko_call *call)
{
	return ko_coll_is_message(call->coll) && call->root == call->comm->rank;
}

int ko_call_do(const struct ko_call *call)
{
	bool collective = call->coll < KO_NCOLLS || ko_coll_has_messages(call->coll);
	int rc;

	/* A collective that waits for nothing: its arguments are checked where it begins, unless
	 * the last call was equal (ko_call_is_known). */
	if (call->comm && collective && !call->queue && !ko_group_is_open() &&
	    ko_order_is_settled(call->comm->order))
		return ko_collective_takes(call) ? ko_collective(call, NULL) : ko_p2p_now(call);
	rc = ko_call_check(call);
	if (rc == 0)
		rc = ko_comm_check_process(call->comm, ko_coll_name((int)call->coll));
	if (rc < 0)
		return rc;
	if (ko_group_is_open())
		return ko_group_add(call);
	if (is_for_itself(call))
		return ko_fail(
			KOLO_EINVAL,
			"rank %d: kolo_%s: peer %d is this rank itself: want the other end in the same "
			"group (kolo_group_begin)",
			call->comm->rank, ko_coll_name((int)call->coll), call->root);
	if (!ko_queue_is_now(call->queue))
		return enqueue(call);
	if (!ko_order_is_settled(call->comm->order) && !call->comm->order->held)
		rc = ko_call_wait_turn(call->comm, call->comm->order->issued + 1);
	return rc < 0 ? rc : ko_call_perform(call, NULL);
}
