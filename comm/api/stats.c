/* What a communicator has done so far (kolo_comm_stats), and which algorithm it chooses for which
 * sizes (kolo_algorithm_get). */
#include "comm/base/error.h"
#include "comm/coll/bruck.h"
#include "comm/coll/collectives.h"
#include "comm/core/edges.h"
#include "comm/memory/board.h"
#include "comm/p2p/lane.h"

#include <stdio.h>

static struct kolo_link_stats link_stats(const struct ko_link *link, int peer)
{
	struct kolo_link_stats s = { .peer = link ? peer : -1 };

	if (!link)
		return s;
	snprintf(s.transport, sizeof(s.transport), "%s", link->ops->name);
	s.bytes = link->bytes;
	s.slots = link->slots;
	if (link->role == KO_SEND) {
		snprintf(s.stores, sizeof(s.stores), "%s", ko_stores_name(link->stores));
		s.rate = link->bytes_per_ns;
	}
	return s;
}

int kolo_comm_stats(const struct kolo_comm *comm, struct kolo_stats *out)
{
	if (!comm || !out)
		return ko_fail(KOLO_EINVAL, "kolo_comm_stats: comm and out must not be NULL");
	ko_order_settle(comm->order);
	*out = (struct kolo_stats){
		.ops = comm->counters.ops[KO_RING] + comm->counters.ops[KO_BOARD] +
		       comm->counters.ops[KO_DIRECT] + comm->counters.ops[KO_EXCHANGE] +
		       comm->counters.p2p_ops,
		.pair_ops = comm->counters.p2p_ops,
		.ring_ops = comm->counters.ops[KO_RING],
		.board_ops = comm->counters.ops[KO_BOARD],
		.direct_ops = comm->counters.ops[KO_DIRECT],
		.exchange_ops = comm->counters.ops[KO_EXCHANGE],
		.model_sent_bytes = comm->counters.model.sent,
		.model_received_bytes = comm->counters.model.received,
		.slot_len = comm->agreed.limits.slot_len,
		.nslots = comm->agreed.limits.nslots,
		.hop_us = comm->agreed.costs.hop_ns / 1e3,
		.to_next = link_stats(comm->edges.to, comm->edges.next),
		.from_prev = link_stats(comm->edges.from, comm->edges.prev),
	};
	snprintf(out->slots_near, sizeof(out->slots_near), "%s", ko_edges_slots_near(comm));
	snprintf(out->algorithm, sizeof(out->algorithm), "%s",
		 *comm->table[0].algorithm ? comm->table[0].algorithm : "best");
	out->sent_bytes = out->to_next.bytes + (comm->attached ? comm->attached->sent : 0) +
			  comm->board->sent + comm->counters.direct.sent + comm->lanes->sent +
			  ko_bruck_sent(comm);
	out->received_bytes = out->from_prev.bytes + (comm->attached ? comm->attached->received : 0) +
			      comm->board->received + comm->counters.direct.received + comm->lanes->received +
			      ko_bruck_received(comm);
	out->memory_bytes = comm->memory +
			    (comm->edges.from ? comm->edges.from->memory + comm->edges.to->memory : 0) +
			    ko_lanes_memory(comm) + ko_bruck_memory(comm) +
			    (comm->rank == 0 || comm->spread ? comm->shared_len : 0);
	return 0;
}

enum { MOST_ROWS = 6 };

/* The end of a range of sizes. A barrier has no bytes: it uses an algorithm always or never. */
static uint64_t all_of(int coll, uint64_t end)
{
	return coll == KO_BARRIER && end ? UINT64_MAX : end;
}

/* Fills in the rows of a collective whose ranges are not empty. Returns how many there are. */
static int algorithm_rows(const struct ko_algorithms *t, int coll, struct kolo_algorithm rows[MOST_ROWS])
{
	const char *name = ko_coll_name(coll);
	uint64_t board = all_of(coll, t->board_end[coll]), exchange = all_of(coll, t->exchange_end[coll]);
	uint64_t read = t->read_begin[coll], ring_end = read == UINT64_MAX ? read : read - 1;
	int n = 0;

	exchange = exchange > board ? exchange : board;
	if (t->window_begin[coll] != UINT64_MAX)
		rows[n++] =
			(struct kolo_algorithm){ name, "direct", "alloc", t->window_begin[coll], UINT64_MAX };
	if (board)
		rows[n++] = (struct kolo_algorithm){ name, "board", "any", 0,
						     board == UINT64_MAX ? board : board - 1 };
	if (exchange > board)
		rows[n++] = (struct kolo_algorithm){ name, "exchange", "any", board,
						     exchange == UINT64_MAX ? exchange : exchange - 1 };
	if (exchange < read || exchange == 0)
		rows[n++] = (struct kolo_algorithm){ name, "ring", "any", exchange, ring_end };
	if (read != UINT64_MAX)
		rows[n++] = (struct kolo_algorithm){ name, "direct", "any", read, UINT64_MAX };
	return n;
}

/* Fills in the rows of collectives made of messages while they are small enough for the board, and
 * the rows of messages, which hold for larger ones too. Returns how many there are. */
static int message_rows(const struct kolo_comm *c, struct kolo_algorithm rows[MOST_ROWS])
{
	const struct ko_algorithms *t = &c->agreed.algorithms;
	uint64_t begin = t->rndv_begin, window = t->rndv_window_begin, board = ko_collective_parts_end(c);
	int n = 0;

	for (int coll = KO_ALL_TO_ALL; board && coll <= KO_SCATTER; coll++)
		rows[n++] = (struct kolo_algorithm){ ko_coll_name(coll), "board", "any", 0, board - 1 };
	if (window != UINT64_MAX)
		rows[n++] = (struct kolo_algorithm){ "send_recv", "direct", "alloc", window, UINT64_MAX };
	rows[n++] = (struct kolo_algorithm){ "send_recv", "lane", "any", 0,
					     begin == UINT64_MAX ? begin : begin - 1 };
	if (begin != UINT64_MAX)
		rows[n++] = (struct kolo_algorithm){ "send_recv", "direct", "any", begin, UINT64_MAX };
	return n;
}

int kolo_algorithm_get(const struct kolo_comm *comm, int index, struct kolo_algorithm *out)
{
	struct kolo_algorithm rows[MOST_ROWS];
	int at = 0, n;

	if (!comm || !out)
		return ko_fail(KOLO_EINVAL, "kolo_algorithm_get: comm and out must not be NULL");
	for (int coll = 0; comm->nranks > 1 && coll <= KO_NCOLLS; coll++) {
		n = coll < KO_NCOLLS ? algorithm_rows(&comm->agreed.algorithms, coll, rows)
				     : message_rows(comm, rows);
		if (index >= at && index < at + n) {
			*out = rows[index - at];
			return 0;
		}
		at += n;
	}
	return ko_fail(KOLO_EINVAL, "kolo_algorithm_get: index %d: want 0 to %d", index, at - 1);
}
