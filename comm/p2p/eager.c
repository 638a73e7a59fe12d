/* Sends or receives a short message through a near lane, without a list of transfers
 * (ko_eager_pass). The other end may use near.c: the lines are filled in the same way. */
#include "comm/p2p/eager.h"

#include "comm/core/wait.h"
#include "comm/p2p/lane.h"
#include "comm/reduce/reduce.h"
#include "comm/sys/thread.h"

#include <string.h>

static bool send_eager(struct kolo_comm *c, struct ko_lane_end *end, const struct ko_call *call,
		       size_t bytes)
{
	const struct ko_algorithms *table = &c->agreed.algorithms;
	bool small = bytes <= KO_LANE_SMALL;
	struct ko_line *line;

	/* near.c counts slots when they get memory, and does rendezvous. */
	if (!small &&
	    (!end->has_slots || bytes >= table->rndv_begin || bytes >= table->rndv_window_begin))
		return false;
	line = ko_lane_acquire(end, !small);
	if (!line)
		return false;
	if (!small && ko_expects_one_way(bytes))
		ko_expect_to_write(ko_lane_slot(end), bytes);
	if (bytes)
		ko_copy_bytes(small ? line->small : ko_lane_slot(end), call->src, bytes);
	line->tag = 0;
	line->n = call->n;
	line->kind = small ? KO_LINE_SMALL : KO_LINE_SLOT;
	line->type = (uint8_t)call->type;
	ko_lane_commit(end);
	c->lanes->sent += bytes;
	c->counters.model.sent += bytes;
	return true;
}

static bool recv_eager(struct kolo_comm *c, struct ko_lane_end *end, const struct ko_call *call,
		       size_t bytes)
{
	const struct ko_line *line = ko_lane_peek(end);

	for (int spins = 0; !line && spins < c->spins; spins++) {
		ko_relax();
		line = ko_lane_peek(end);
	}
	if (!line || line->tag != 0 || line->n != call->n || line->type != call->type ||
	    (line->kind != KO_LINE_SMALL && line->kind != KO_LINE_SLOT))
		return false;
	if (bytes)
		ko_copy_bytes(call->dst,
			      line->kind == KO_LINE_SMALL ? line->small : ko_lane_slot(end), bytes);
	ko_lane_take(end);
	c->lanes->received += bytes;
	c->counters.model.received += bytes;
	return true;
}

bool ko_eager_pass(const struct ko_call *call)
{
	struct kolo_comm *c = call->comm;
	size_t bytes = call->n * kolo_type_size(call->type);
	bool sends = call->coll == KO_SEND_TO;
	struct ko_lane_end *end;

	/* If too many lanes keep memory, ko_transfers_do trims them. */
	if (!c->lanes->ends || c->lanes->with_slots > KO_LANES_KEPT || bytes > KO_LANE_SLOT ||
	    c->traced || ko_wait_hear(c) < 0)
		return false;
	end = &c->lanes->ends[sends ? call->root : c->nranks + call->root];
	if (!end->lane || !(sends ? send_eager : recv_eager)(c, end, call, bytes))
		return false;
	end->used = ++c->lanes->uses;
	c->counters.p2p_ops++;
	ko_bells_ring(c->bells, c->rank, c->nranks);
	return true;
}
