/* See probe.h. */
#include "comm/create/probe.h"

#include "comm/base/clock.h"
#include "comm/coll/bruck.h"
#include "comm/coll/moves.h"
#include "comm/coll/oneshot.h"
#include "comm/core/edges.h"
#include "comm/memory/board.h"
#include "comm/memory/cma.h"
#include "comm/memory/turns.h"
#include "comm/p2p/lane.h"

#include <stdlib.h>
#include <string.h>

enum {
	PROBE_SLOTS = 8,
	PROBE_BYTES = 64 << 10, /* of a slot, where slots are as large */
	MESSAGE = 2 << 10,      /* bytes */
	REPEATS = 3,            /* the best counts: the first one warms up, and others may be disturbed */
	READS = 4,
	LAPS = 16,       /* round the ring, or turns, in a repeat */
	MANY_RANKS = 64, /* more have a quarter of the laps */
};

/* A step round the ring: everyone sends so many bytes to its next. */
static int take_step(struct ko_run *run, char *buffer, size_t len)
{
	int rc = ko_send(run, run->copy, buffer, NULL, len);

	return rc < 0 ? rc : ko_keep(run, buffer, len);
}

/* A message of rank 0's goes once round the ring. Whoever has it knows what all ranks before it did before; rank 0 what all
 * did. */
static int go_round(struct ko_run *run, void *message, size_t len)
{
	return run->comm->rank == 0 ? take_step(run, message, len) : ko_keep_and_pass(run, message, len);
}

static int lap(struct ko_run *run)
{
	/* There it stays until it has gone. */
	return go_round(run, run->comm->scratch, sizeof(uint64_t));
}

/* A turn on the board, in which everyone gives so many bytes. */
static int take_turn(struct ko_run *run, char *buffer, size_t len)
{
	struct kolo_comm *c = run->comm;
	int rc;

	ko_board_expect(c->board, c->rank, len);
	rc = ko_turn_give(run, buffer, len);
	for (int k = 1; rc == 0 && k < c->nranks; k++)
		rc = ko_turn_wait(run, ko_ring_back(&c->ring, c->rank, k));
	ko_turn_end(run);
	return rc;
}

/* The time of one of them: of several in a row, since whoever comes last to one does not wait. */
static int measure(struct ko_run *run, int (*take)(struct ko_run *, char *, size_t), char *buffer, size_t len,
		   double *ns)
{
	int laps = run->comm->nranks > MANY_RANKS ? LAPS / 4 : LAPS, rc = 0;

	for (int k = 0; rc == 0 && k < REPEATS; k++) {
		int64_t begin = ko_now_ns();
		double took;

		for (int i = 0; rc == 0 && i < laps; i++)
			rc = take(run, buffer, len);
		took = (double)(ko_now_ns() - begin) / laps;
		if (k == 0 || took < *ns)
			*ns = took;
	}
	return rc;
}

/* What bytes cost beyond a hop: at a step all are written, and then read. The board's are taken to cost the same: times of
 * single messages differ more by chance. */
static int measure_costs(struct ko_run *run, char *buffer, size_t len, struct ko_costs *costs)
{
	size_t small = sizeof(uint64_t), large = len < MESSAGE ? len : MESSAGE;
	double large_ns = 0;
	int rc = measure(run, take_step, buffer, small, &costs->hop_ns);

	if (rc == 0 && !run->comm->spread)
		rc = measure(run, take_turn, buffer, small, &costs->turn_ns);
	if (rc == 0)
		rc = measure(run, take_step, buffer, large, &large_ns);
	costs->bytes_per_ns = 2 * (double)large / (large_ns > costs->hop_ns ? large_ns - costs->hop_ns : 1);
	return rc;
}

/* Slots go over every other edge of the ring at a time: those from places of this parity. */
static int send_some(struct ko_run *run, int parity, void *buffer, size_t len, double *bytes_per_ns)
{
	const struct ko_ring *ring = &run->comm->ring;
	int rank = run->comm->rank, rc = lap(run);
	bool sends = ko_ring_place(ring, rank) % 2 == parity;
	bool receives = ko_ring_place(ring, ko_ring_prev(ring, rank)) % 2 == parity;
	int64_t begin = ko_now_ns();
	double rate;

	for (int k = 0; rc == 0 && k < PROBE_SLOTS; k++) {
		if (sends)
			rc = ko_send(run, run->copy, buffer, NULL, len);
		if (rc == 0 && receives)
			rc = ko_keep(run, buffer, len);
	}
	rate = PROBE_SLOTS * (double)len / (double)(ko_now_ns() - begin);
	if (sends && rate > *bytes_per_ns)
		*bytes_per_ns = rate;
	return rc;
}

/* The rate to next with each kind of stores, and the better kind for it. */
static int measure_stores(struct ko_run *run, void *buffer, size_t len)
{
	struct ko_link *link = run->comm->edges.to;
	double rates[2] = { 0, 0 };
	int rc = 0;

	for (int k = 0; rc == 0 && k < REPEATS * 4; k++) {
		link->stores = k / 2 % 2 ? KO_STREAMING : KO_ORDINARY;
		rc = send_some(run, k % 2, buffer, len, &rates[link->stores]);
	}
	link->stores = rates[KO_STREAMING] > rates[KO_ORDINARY] ? KO_STREAMING : KO_ORDINARY;
	link->bytes_per_ns = rates[link->stores];
	return rc;
}

/* Where neighbours live on different NUMA nodes: rank 0 says near which of the two their slots are better. */
static int place_slots(struct ko_run *run, char *buffer, size_t len)
{
	static const enum ko_role sides[] = { KO_RECV, KO_SEND };
	struct kolo_comm *c = run->comm;
	double ns[2] = { 0, 0 };
	unsigned char better;
	int rc = 0;

	c->agreed.slots_near = KO_RECV; /* whose they are at first */
	if (!ko_edges_differ(c))
		return 0;
	for (int k = 0; rc == 0 && k < 2; k++) {
		rc = ko_edges_settle(run, sides[k]);
		if (rc == 0)
			rc = measure_stores(run, buffer, len);
		if (rc == 0)
			rc = measure(run, take_step, buffer, len, &ns[sides[k]]);
	}
	better = ns[KO_SEND] < ns[KO_RECV] ? KO_SEND : KO_RECV;
	if (rc == 0)
		rc = go_round(run, &better, 1);
	if (rc == 0)
		rc = ko_drain(run);
	if (rc < 0)
		return rc;
	c->agreed.slots_near = (enum ko_role)better;
	return ko_edges_settle(run, c->agreed.slots_near);
}

/* May this rank get at what all others have at their buffers? */
static bool can_reach_all(const struct kolo_comm *c)
{
	for (int r = 0; r < c->nranks; r++) {
		uint64_t token;

		memcpy(&token, c->table[r].token, sizeof(token));
		if (r != c->rank && !ko_cma_reachable(c, r, c->roster->post[r].buffer, token))
			return false;
	}
	return true;
}

/* The best time of reading `len` bytes of prev's buffer. */
static double time_reading(const struct kolo_comm *c, void *buffer, size_t len)
{
	int prev = ko_ring_prev(&c->ring, c->rank);
	double best = 0;

	for (int k = 0; k < READS; k++) {
		int64_t begin = ko_now_ns();
		double took;

		if (ko_cma_read(c, prev, c->roster->post[prev].buffer, buffer, len) < 0)
			return 0;
		took = (double)(ko_now_ns() - begin);
		if (best == 0 || took < best)
			best = took;
	}
	return best;
}

/* Reading other ranks' memory: may we, and how fast is it? The others may read the first half of the buffer. */
static int measure_reading(struct ko_run *run, char *buffer, size_t len)
{
	struct kolo_comm *c = run->comm;
	struct ko_post *mine = &c->roster->post[c->rank];
	size_t half = len / 2;
	int rc;

	memcpy(buffer, c->table[c->rank].token, KO_TOKEN);
	mine->buffer = (uintptr_t)buffer;
	/* After the second lap everyone knows that everyone has come to the first. */
	if ((rc = lap(run)) < 0 || (rc = lap(run)) < 0)
		return rc;
	if (can_reach_all(c)) {
		double all = time_reading(c, buffer + half, half);

		mine->read_ns = time_reading(c, buffer + half, KO_TOKEN);
		if (mine->read_ns > 0 && all > 0) /* the one may have been disturbed, and the other not */
			mine->read_bytes_per_ns =
				(double)half / (all > mine->read_ns ? all - mine->read_ns : all);
	}
	return 0;
}

/* A network that was asked for by name is to carry all bytes, on one host too. */
static bool is_network(const struct kolo_comm *c)
{
	return c->spread || (*c->table[0].transport && strcmp(c->table[0].transport, "shm") != 0);
}

/* Rank 0, when all have posted what they have measured: the slowest and the longest count. */
static void decide(struct kolo_comm *c, const struct ko_costs *costs, struct ko_agreed *out)
{
	*out = c->agreed;
	out->costs = *costs;
	out->costs.read_bytes_per_ns = c->roster->post[0].read_bytes_per_ns;
	out->costs.crowded = c->spins == 0;
	out->costs.network = is_network(c);
	out->costs.exchange_room = ko_oneshot_room(c);
	out->costs.exchange_hops = ko_bruck_hops(c);
	out->costs.lane_bytes = KO_LANE_SLOTS * KO_LANE_SLOT;
	for (int r = 0; r < c->nranks; r++) {
		const struct ko_post *post = &c->roster->post[r];

		if (post->read_bytes_per_ns < out->costs.read_bytes_per_ns)
			out->costs.read_bytes_per_ns = post->read_bytes_per_ns;
		if (post->read_ns > out->costs.read_ns)
			out->costs.read_ns = post->read_ns;
	}
	ko_algorithm_decide(c->table[0].algorithm, &out->costs, c->nranks, ko_board_room(c->nranks),
			    &out->algorithms);
}

/* Who is through here knows that everyone else can be: what it fails with later is no failure of theirs in here. */
static int agree(struct ko_run *run, const struct ko_costs *costs)
{
	struct kolo_comm *c = run->comm;
	struct ko_agreed agreed = { 0 };
	int rc = lap(run);

	if (rc == 0 && c->rank == 0)
		decide(c, costs, &agreed);
	if (rc == 0)
		rc = go_round(run, &agreed, sizeof(agreed));
	if (rc == 0)
		rc = ko_drain(run);
	if (rc == 0)
		c->agreed = agreed;
	return rc;
}

_Static_assert(sizeof(struct ko_agreed) <= KO_MIN_SLOT, "it goes in a slot");

/* What is counted from now on is the user's. */
static void forget(struct ko_link *link)
{
	link->bytes = link->slots = 0;
}

int ko_probe(struct kolo_comm *c)
{
	/* Not an operation: its number is 0, and nobody traces it. */
	struct ko_run run = { .comm = c, .size = 1, .copy = ko_copy(KOLO_U8) };
	size_t len = c->agreed.limits.slot_len < PROBE_BYTES ? c->agreed.limits.slot_len : PROBE_BYTES;
	struct ko_costs costs = { 0 };
	char *buffer;
	int rc;

	if (c->nranks == 1)
		return 0;
	buffer = calloc(1, len);
	if (!buffer)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory to measure its links", c->rank);
	rc = place_slots(&run, buffer, len);
	if (rc == 0)
		rc = measure_costs(&run, buffer, len, &costs);
	if (rc == 0)
		rc = measure_stores(&run, buffer, len);
	if (rc == 0 && !c->spread)
		rc = measure_reading(&run, buffer, len);
	if (rc == 0)
		rc = agree(&run, &costs);
	free(buffer);
	forget(c->edges.to);
	forget(c->edges.from);
	return rc;
}
