/* What a communicator has done so far (kolo_comm_stats), and which algorithm it chooses for which
 * sizes (kolo_algorithm_get). */
#include "comm/base/error.h"
#include "comm/coll/algorithms.h"
#include "comm/coll/collectives.h"
#include "comm/core/edges.h"
#include "comm/memory/board.h"
#include "comm/p2p/lane.h"
#include "comm/rings/bruck.h"
#include "comm/rings/rails.h"

#include <stdio.h>
#include <string.h>

static struct kolo_link_stats link_stats(const struct ko_link *link, int peer)
{
	struct kolo_link_stats s = { .peer = link ? peer : -1 };

	if (!link)
		return s;
	snprintf(s.transport, sizeof(s.transport), "%s", link->ops->name);
	s.bytes = link->bytes;
	s.slots = link->slots;
	if (link->role == KO_SEND) {
		snprintf(s.stores, sizeof(s.stores), "%s", ko_stores_name(link->writer.stores));
		s.rate = link->bytes_per_ns;
	}
	return s;
}

int kolo_comm_stats(const struct kolo_comm *comm, struct kolo_stats *out)
{
	int rc;

	if (!comm || !out)
		return ko_fail(KOLO_EINVAL, "kolo_comm_stats: comm and out must not be NULL");
	rc = ko_comm_check_process(comm, "kolo_comm_stats");
	if (rc < 0)
		return rc;
	ko_order_settle(comm->order);
	*out = (struct kolo_stats){
		.ops = comm->counters.p2p_ops,
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
	for (int k = 0; k < KO_NALGORITHMS; k++)
		out->ops += comm->counters.ops[k];
	snprintf(out->slots_near, sizeof(out->slots_near), "%s", ko_edges_slots_near(comm));
	snprintf(out->algorithm, sizeof(out->algorithm), "%s",
		 *comm->table[0].algorithm ? comm->table[0].algorithm : "best");
	out->sent_bytes = out->to_next.bytes + (comm->attached ? comm->attached->sent : 0) +
			  comm->board->sent + comm->counters.direct.sent + comm->lanes->sent +
			  ko_bruck_sent(comm) + ko_rails_sent(comm);
	out->received_bytes =
		out->from_prev.bytes + (comm->attached ? comm->attached->received : 0) +
		comm->board->received + comm->counters.direct.received + comm->lanes->received +
		ko_bruck_received(comm) + ko_rails_received(comm);
	out->memory_bytes =
		comm->memory +
		(comm->edges.from ? comm->edges.from->memory + comm->edges.to->memory : 0) +
		ko_lanes_memory(comm) + ko_bruck_memory(comm) + ko_rails_memory(comm) +
		(comm->rank == 0 || comm->spread ? comm->shared_len : 0);
	return 0;
}

uint64_t kolo_algorithm_ops(const struct kolo_comm *comm, const char *name)
{
	uint64_t ops = 0;

	if (!comm || !name || ko_comm_check_process(comm, "kolo_algorithm_ops") < 0)
		return 0;
	ko_order_settle(comm->order);
	for (int k = 0; k < KO_NALGORITHMS; k++)
		if (strcmp(ko_algorithm_table[k]->name, name) == 0)
			ops = comm->counters.ops[k];
	return ops;
}

double kolo_algorithm_time(const struct kolo_comm *comm, const struct kolo_algorithm *row,
			   uint64_t bytes)
{
	const struct ko_algorithm_ops *ops;
	struct ko_estimate e;
	int coll = 0, k = 0;
	bool windows;

	if (!comm || !row)
		return -1;
	while (coll < KO_NCOLLS && strcmp(row->collective, ko_coll_name(coll)) != 0)
		coll++;
	while (k < KO_NALGORITHMS && strcmp(row->name, ko_algorithm_table[k]->name) != 0)
		k++;
	if (coll == KO_NCOLLS || k == KO_NALGORITHMS || coll == KO_BARRIER ||
	    ko_coll_has_messages((enum ko_coll)coll))
		return -1;
	ops = ko_algorithm_table[k];
	windows = strcmp(row->memory, "alloc") == 0;
	if (!ops->end((enum ko_coll)coll, &comm->agreed.costs, comm->nranks, windows))
		return -1;
	e = ops->cost((enum ko_coll)coll, &comm->agreed.costs, comm->nranks, windows);
	return (e.fixed + e.slope * (double)bytes) / 1e3;
}

enum { MOST_ROWS = 2 * KO_NALGORITHMS };

_Static_assert(MOST_ROWS >= 7, "as many as message_rows makes");

/* The row for the sizes begin <= size < end; end UINT64_MAX: all from begin on. */
static struct kolo_algorithm row_of(int coll, enum ko_algorithm k, const char *memory,
				    uint64_t begin, uint64_t end)
{
	return (struct kolo_algorithm){ ko_coll_name(coll), ko_algorithm_table[k]->name, memory,
					begin, end == UINT64_MAX ? end : end - 1 };
}

/* Where sizes begin for which an algorithm is tried first, whatever memory they are in. */
static uint64_t tried_begin(const struct ko_algorithms *t, int coll)
{
	uint64_t begin = UINT64_MAX;

	for (int k = 0; k < KO_NALGORITHMS; k++)
		if (ko_algorithm_table[k]->agree && t->any[k][coll].begin < begin)
			begin = t->any[k][coll].begin;
	return begin;
}

/* Adds the rows of algorithms that are tried first, with memory of one kind. */
static int add_tried(const struct ko_sizes ranges[][KO_NCOLLS], int coll, const char *memory,
		     struct kolo_algorithm *rows, int n)
{
	for (int k = 0; k < KO_NALGORITHMS; k++)
		if (ko_algorithm_table[k]->agree && ranges[k][coll].begin != UINT64_MAX)
			rows[n++] = row_of(coll, (enum ko_algorithm)k, memory,
					   ranges[k][coll].begin, UINT64_MAX);
	return n;
}

/* The rows of a collective that are not empty. Returns how many there are. A barrier has no bytes:
 * one algorithm does it always. */
static int algorithm_rows(const struct kolo_comm *c, int coll,
			  struct kolo_algorithm rows[MOST_ROWS])
{
	const struct ko_algorithms *t = &c->agreed.algorithms;
	enum ko_algorithm rest = ko_algorithm_rest((enum ko_coll)coll, c->sums);
	uint64_t tried = tried_begin(t, coll);
	int n = add_tried(t->windows, coll, "alloc", rows, 0);
	uint64_t begin = 0, end;

	for (int i = 1; i <= KO_NALGORITHMS; i++) { /* the last one has what the others leave */
		enum ko_algorithm k = (enum ko_algorithm)(i % KO_NALGORITHMS);

		if (ko_algorithm_table[k]->agree)
			continue;
		end = k == rest ? tried : ko_min_size(t->any[k][coll].end, tried);
		if (coll == KO_BARRIER && end)
			end = UINT64_MAX;
		if (end > begin) {
			rows[n++] = row_of(coll, k, "any", begin, end);
			begin = end;
		}
	}
	return add_tried(t->any, coll, "any", rows, n);
}

/* Fills in the rows of collectives made of messages while they are small enough for the board, and
 * the rows of messages, which hold for larger ones too. Returns how many there are. */
static int message_rows(const struct kolo_comm *c, struct kolo_algorithm rows[MOST_ROWS])
{
	const struct ko_algorithms *t = &c->agreed.algorithms;
	uint64_t begin = t->rndv_begin, window = t->rndv_window_begin;
	const char *direct = ko_algorithm_table[KO_DIRECT]->name;
	int n = 0;

	for (int coll = KO_ALL_TO_ALL; coll <= KO_SCATTER; coll++) {
		uint64_t board = ko_parts_end(t, (enum ko_coll)coll);

		if (board)
			rows[n++] = row_of(coll, KO_BOARD, "any", 0, board);
	}
	if (t->led_end > t->parts_end)
		rows[n++] = row_of(KO_ALL_TO_ALL, KO_SHARES, "any", t->parts_end, t->led_end);
	if (window != UINT64_MAX)
		rows[n++] =
			(struct kolo_algorithm){ "send_recv", direct, "alloc", window, UINT64_MAX };
	rows[n++] = (struct kolo_algorithm){ "send_recv", "lane", "any", 0,
					     begin == UINT64_MAX ? begin : begin - 1 };
	if (begin != UINT64_MAX)
		rows[n++] =
			(struct kolo_algorithm){ "send_recv", direct, "any", begin, UINT64_MAX };
	return n;
}

int kolo_algorithm_get(const struct kolo_comm *comm, int index, struct kolo_algorithm *out)
{
	struct kolo_algorithm rows[MOST_ROWS];
	int at = 0, n;

	if (!comm || !out)
		return ko_fail(KOLO_EINVAL, "kolo_algorithm_get: comm and out must not be NULL");
	for (int coll = 0; comm->nranks > 1 && coll <= KO_NCOLLS; coll++) {
		n = coll < KO_NCOLLS ? algorithm_rows(comm, coll, rows) : message_rows(comm, rows);
		if (index >= at && index < at + n) {
			*out = rows[index - at];
			return 0;
		}
		at += n;
	}
	return ko_fail(KOLO_EINVAL, "kolo_algorithm_get: index %d: want 0 to %d", index, at - 1);
}
