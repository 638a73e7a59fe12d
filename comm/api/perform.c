/* Does a call (ko_call_perform) or waits for its turn (ko_call_wait_turn). */
#include "comm/api/perform.h"

#include "comm/coll/collectives.h"
#include "comm/p2p/p2p.h"
#include "comm/sys/queue.h"

int ko_call_perform(const struct ko_call *call, const struct ko_reducer *red)
{
	if (call->queue && call->queue->stream)
		return call->queue->stream->record(call->queue, call, red);
	return ko_collective_takes(call) ? ko_collective(call, red) : ko_p2p(call);
}

int ko_call_wait_turn(struct kolo_comm *c, uint64_t place)
{
	int rc = 0;

	while (rc == 0 && !ko_order_wait(c->order, place))
		rc = ko_roster_cause(c->roster);
	return rc;
}
