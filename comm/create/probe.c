/* Measures hops, turns, stores and CMA when a communicator is made, and lets rank 0 decide by that
 * (ko_probe). */
#include "comm/create/probe.h"

#include "comm/base/clock.h"
#include "comm/coll/algorithms.h"
#include "comm/coll/doubling.h"
#include "comm/coll/exchange.h"
#include "comm/core/edges.h"
#include "comm/leaders/when.h"
#include "comm/memory/board.h"
#include "comm/memory/cma.h"
#include "comm/memory/turns.h"
#include "comm/p2p/lane.h"
#include "comm/rings/bruck.h"
#include "comm/rings/moves.h"
#include "comm/rings/rails.h"
#include "comm/rings/step.h"

#include <stdlib.h>
#include <string.h>

enum {
	PROBE_SLOTS = 8,
	PROBE_BYTES = 64 << 10,   /* at most, of a slot */
	NEAR_MESSAGE = 16 << 10,  /* bytes */
	SHARED_MESSAGE = 2 << 10, /* where ranks share processors */
	LONG_PAYLOAD = 64 << 10,
	FEWER_BYTES = 8 << 10, /* of a payload that could be read where it lies instead */
	SHARED_PAYLOAD = 8 << 10,
	SHARING_RANKS = 8,      /* more of them don't measure long payloads */
	FAR_MESSAGE = 64 << 10, /* between hosts, where fewer can't be told from none */
	REPEATS = 3,            /* the best counts: the first one warms up */
	FAR_REPEATS = 8,        /* between hosts, where more disturbs */
	READS = 8,              /* the best counts */
	LAPS = 16,              /* steps round the ring, or turns, in a repeat */
	LONE_LAPS = 2,          /* the same of a message that goes all the way */
	MANY_RANKS = 64, /* more have a quarter of the laps, REPEATS, and measure stores once */
};

/* Times as long: measured so, it is longer. */
static const double CLEARLY = 1.5;

/* Times as long as streaming ones, and reading what they wrote, ordinary ones may take later. */
static const double LATER = 1.25;

/* A step round a ring of links: each rank sends `len` bytes to its next. */
static int step_along(struct ko_run *run, const struct ko_edges *ring, char *buffer, size_t len)
{
	const struct ko_part out = { buffer, NULL, len, 0 }, in = { NULL, buffer, len, 0 };
	struct ko_step s = { .out = true, .fill = run->copy, .stays = true, .nparts = 1 };
	int rc;

	s.parts = &out;
	rc = ko_do_step(run, ring, &s);
	s = (struct ko_step){ .in = true, .parts = &in, .nparts = 1 };
	return rc < 0 ? rc : ko_do_step(run, ring, &s);
}

static int take_step(struct ko_run *run, char *buffer, size_t len)
{
	return step_along(run, &run->comm->edges, buffer, len);
}

static int take_step_in_group(struct ko_run *run, char *buffer, size_t len)
{
	return step_along(run, &run->comm->rails->group, buffer, len);
}

static int take_step_on_rail(struct ko_run *run, char *buffer, size_t len)
{
	return step_along(run, &run->comm->rails->rail, buffer, len);
}

/* A message of rank 0 goes once along the rail of leaders, as in go_round. */
static int go_along_rail(struct ko_run *run, char *buffer, size_t len)
{
	const struct ko_part part = { NULL, buffer, len, 0 };
	const struct ko_step pass = {
		.in = true, .out = true, .stays = true, .parts = &part, .nparts = 1
	};

	return run->comm->rank == 0 ? take_step_on_rail(run, buffer, len)
				    : ko_do_step(run, &run->comm->rails->rail, &pass);
}

/* A message of rank 0 goes once round the ring. A rank that has it knows that all ranks before it
 * have come here, and rank 0 then knows it of all ranks. */
static int go_round(struct ko_run *run, void *message, size_t len)
{
	return run->comm->rank == 0 ? take_step(run, message, len)
				    : ko_keep_and_pass(run, message, len);
}

/* A message without a meaning goes once round the ring. */
static int lap(struct ko_run *run)
{
	/* The message stays in scratch until it is sent. Nobody gets what was there. */
	memset(run->comm->scratch, 0, sizeof(uint64_t));
	return go_round(run, run->comm->scratch, sizeof(uint64_t));
}

/* Two laps. After the second one each rank knows that all ranks have come to the first. */
static int meet(struct ko_run *run)
{
	int rc = lap(run);

	return rc < 0 ? rc : lap(run);
}

/* A turn on the board: each rank gives `len` bytes and waits for all others. */
static int take_turn(struct ko_run *run, char *buffer, size_t len)
{
	struct kolo_comm *c = run->comm;
	int rc;

	ko_board_expect(c->board, c->rank, len);
	rc = ko_turn_give(run, buffer, len, NULL, 0);
	for (int k = 1; rc == 0 && k < c->nranks; k++)
		rc = ko_turn_wait(run, ko_ring_back(&c->ring, c->rank, k));
	ko_turn_end(run);
	return rc;
}

/* The same of a long payload, which all others read. */
static int take_long_turn(struct ko_run *run, char *buffer, size_t len)
{
	struct kolo_comm *c = run->comm;
	int rc;

	ko_board_take_rooms(c->board, len);
	rc = ko_turn_give(run, buffer, len, NULL, 0);
	for (int k = 1; rc == 0 && k < c->nranks; k++) {
		int r = ko_ring_back(&c->ring, c->rank, k);

		rc = ko_turn_wait(run, r);
		if (rc == 0)
			memcpy(buffer, ko_board_payload(c->board, c->board->turn, r, len), len);
	}
	ko_turn_end(run);
	return rc;
}

typedef int take_fn(struct ko_run *run, char *buffer, size_t len);

static int laps_of(const struct kolo_comm *c)
{
	return c->nranks > MANY_RANKS ? LAPS / 4 : LAPS;
}

static int repeats_of(const struct kolo_comm *c)
{
	return c->spread && c->nranks <= MANY_RANKS ? FAR_REPEATS : REPEATS;
}

/* Measures the time of one step or turn, by several in a row: the last rank to come to a single one
 * would not wait. *best: the shortest so far; 0: none. */
static int measure_once(struct ko_run *run, take_fn *take, int laps, char *buffer, size_t len,
			double *best)
{
	int64_t begin = ko_now_ns();
	double took;
	int rc = 0;

	for (int i = 0; rc == 0 && i < laps; i++)
		rc = take(run, buffer, len);
	took = (double)(ko_now_ns() - begin) / laps;
	if (*best == 0 || took < *best)
		*best = took;
	return rc;
}

static int measure(struct ko_run *run, take_fn *take, char *buffer, size_t len, double *ns)
{
	int rc = 0;

	*ns = 0;
	for (int k = 0; rc == 0 && k < repeats_of(run->comm); k++)
		rc = measure_once(run, take, laps_of(run->comm), buffer, len, ns);
	return rc;
}

/* Measures a small message, and what more bytes cost: all of them are written, then read. Small and
 * large messages take turns, so that what disturbs the one disturbs the other. Between hosts there
 * are half as many large ones: a network may be slow. */
static int measure_bytes(struct ko_run *run, take_fn *take, int laps, char *buffer, size_t large,
			 double *small_ns, double *bytes_per_ns)
{
	int repeats = repeats_of(run->comm), each = repeats > REPEATS ? 2 : 1, rc = 0;
	double large_ns = 0, least, more;

	*small_ns = 0;
	for (int k = 0; rc == 0 && k < repeats; k++) {
		rc = measure_once(run, take, laps, buffer, sizeof(uint64_t), small_ns);
		if (rc == 0 && k % each == 0)
			rc = measure_once(run, take, laps, buffer, large, &large_ns);
	}
	least = *small_ns / 32; /* no bytes are for nothing, whatever was disturbed */
	more = large_ns - *small_ns;
	*bytes_per_ns = 2 * (double)large / (more > least ? more : least);
	return rc;
}

/* Of a message that leaders pass on along their rail, from each to the next. Among many ranks that
 * would take too long. */
static int measure_lone(struct ko_run *run, char *buffer, size_t len, struct ko_costs *costs)
{
	int groups = run->comm->shape.ngroups;
	double ns;
	int rc;

	if (run->comm->nranks > MANY_RANKS)
		return 0;
	rc = measure_bytes(run, go_along_rail, LONE_LAPS, buffer,
			   ko_min_size(len, run->comm->rails->piece), &ns,
			   &costs->lone_bytes_per_ns);
	costs->lone_bytes_per_ns *= groups;
	return rc;
}

/* The longest that a hop between hosts may take: all of the ring's together take no longer than all
 * of its hops. What measures longer was disturbed. 0: the ring has no such hop. */
static double longest_far_hop(const struct kolo_comm *c, double hop_ns)
{
	int far = 0;

	for (int r = 0; r < c->nranks; r++)
		far += !ko_place_same(&c->table[r].place,
				      &c->table[ko_ring_next(&c->ring, r)].place);
	return far ? hop_ns * c->nranks / far : 0;
}

/* Measures hops and bytes of all groups at the same time, then of the leaders along the rail of
 * rank 0. What other ranks do next waits for these. */
static int measure_levels(struct ko_run *run, char *buffer, size_t len, struct ko_costs *costs)
{
	const struct kolo_comm *c = run->comm;
	bool leads = ko_shape_rail(&c->shape, c->rank) == ko_shape_rail(&c->shape, 0);
	size_t small = sizeof(uint64_t);
	double most = longest_far_hop(c, costs->hop_ns);
	int rc = 0;

	costs->lone_bytes_per_ns = costs->group_bytes_per_ns = costs->bytes_per_ns;
	if (c->shape.size > 1)
		rc = measure_bytes(run, take_step_in_group, laps_of(c), buffer,
				   ko_min_size(len, c->rails->group_slot), &costs->group_hop_ns,
				   &costs->group_bytes_per_ns);
	if (rc < 0 || c->shape.ngroups == 1 || !leads)
		return rc;
	rc = measure(run, take_step_on_rail, buffer, small, &costs->rail_hop_ns);
	if (most > 0 && costs->rail_hop_ns > most)
		costs->rail_hop_ns = most;
	return rc < 0 ? rc : measure_lone(run, buffer, len, costs);
}

/* Measures a hop, a turn, and what bytes cost. Those of long payloads on the board are measured
 * apart (measure_board). */
static int measure_costs(struct ko_run *run, char *buffer, size_t len, struct ko_costs *costs)
{
	const struct kolo_comm *c = run->comm;
	size_t near = c->share > 1 ? SHARED_MESSAGE : NEAR_MESSAGE;
	size_t large = ko_min_size(len, c->spread ? FAR_MESSAGE : near);
	int rc = measure_bytes(run, take_step, laps_of(c), buffer, large, &costs->hop_ns,
			       &costs->bytes_per_ns);

	if (rc == 0 && !c->spread)
		rc = measure(run, take_turn, buffer, sizeof(uint64_t), &costs->turn_ns);
	return rc == 0 && c->rails ? measure_levels(run, buffer, large, costs) : rc;
}

/* What slots cost without the waiting, in ns: filling one to next, and copying one from prev. 0:
 * not measured yet. The shortest times. */
struct slot_ns {
	double fill, keep;
};

static void keep_shorter(double *best, int64_t begin)
{
	double took = (double)(ko_now_ns() - begin);

	if (*best == 0 || took < *best)
		*best = took;
}

/* Fills slots to next with this kind of stores and copies those from prev, in turns; not between
 * hosts. All ranks do so at a time. */
static int exchange_slots(struct ko_run *run, enum ko_stores stores, char *buffer, size_t len,
			  struct slot_ns *best)
{
	const struct ko_edges *e = &run->comm->edges;
	bool fills = ko_comm_is_here(run->comm, e->next),
	     keeps = ko_comm_is_here(run->comm, e->prev);
	struct ko_slot slot;
	int64_t begin;
	int rc = lap(run);

	ko_writer_set(&e->to->writer, stores, 0);
	for (int k = 0; rc == 0 && k < PROBE_SLOTS; k++) {
		if (fills && (rc = ko_wait_room(run, e, &slot)) == 0) {
			begin = ko_now_ns();
			ko_step_fill(run, stores, run->copy, slot.ptr, buffer, len);
			rc = ko_hand_over(run, e, &slot, len);
			keep_shorter(&best->fill, begin);
		}
		if (keeps && rc == 0 && (rc = ko_wait_data(run, e, buffer, len, &slot)) == 0) {
			begin = ko_now_ns();
			ko_step_fill(run, KO_ORDINARY, run->copy, buffer, slot.ptr, len);
			keep_shorter(&best->keep, begin);
			rc = ko_give_back(run, e);
		}
	}
	return rc;
}

/* Measures both kinds of stores and chooses one for the link to next: streaming if filling a slot
 * and copying it there takes clearly less time with it (why: D195 in comm/DECISIONS.md). Between
 * hosts ordinary ones. If ranks have rosters of their own, what this one has measured stands for
 * next. What ordinary ones may take later depends on streaming ones, which differ less between
 * moods of the machine (D208). */
static int choose_stores(struct ko_run *run, char *buffer, size_t len, int repeats)
{
	struct kolo_comm *c = run->comm;
	double *mine = c->roster->post[c->rank].keep_ns;
	const double *there =
		c->spread ? mine : c->roster->post[ko_ring_next(&c->ring, c->rank)].keep_ns;
	struct slot_ns of[2] = { { 0, 0 }, { 0, 0 } };
	double streamed, ordinary;
	bool streams;
	int rc = 0;

	for (int k = 0; rc == 0 && k < 2 * repeats; k++)
		rc = exchange_slots(run, k % 2 ? KO_STREAMING : KO_ORDINARY, buffer, len,
				    &of[k % 2]);
	for (int k = 0; k < 2; k++)
		mine[k] = of[k].keep;
	if (rc == 0)
		rc = meet(run);
	streamed = of[KO_STREAMING].fill + there[KO_STREAMING];
	ordinary = of[KO_ORDINARY].fill;
	streams = CLEARLY * streamed < ordinary + there[KO_ORDINARY];
	ko_writer_set(&c->edges.to->writer, streams ? KO_STREAMING : KO_ORDINARY,
		      LATER * (streams || ordinary < streamed ? streamed : ordinary) / (double)len);
	return rc;
}

/* Measures the rate of slots to next. Every other edge of the ring is used at a time: those from
 * places of this parity. */
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

/* Chooses the stores of the link to next, and measures its rate. */
static int measure_stores(struct ko_run *run, char *buffer, size_t len)
{
	int repeats = run->comm->nranks > MANY_RANKS ? 1 : REPEATS;
	int rc = choose_stores(run, buffer, len, repeats);
	double rate = 0;

	for (int k = 0; rc == 0 && k < 2 * repeats; k++)
		rc = send_some(run, k % 2, buffer, len, &rate);
	run->comm->edges.to->bytes_per_ns = rate;
	return rc;
}

/* Measures long payloads on the board, written in one way. *ns: the best time of a turn. */
static int measure_way(struct ko_run *run, enum ko_board_way way, char *buffer, size_t bytes,
		       double *ns)
{
	enum { TURNS = 2 }; /* in a repeat: few, because the memory that they touch is new */
	int rc = 0;

	ko_board_set_way(run->comm->board, run->comm->nranks, way, 0);
	*ns = 0;
	for (int k = 0; rc == 0 && k < 3 * REPEATS; k++)
		rc = measure_once(run, take_long_turn, TURNS, buffer, bytes, ns);
	return rc;
}

/* Bytes that are written and read per ns, if a turn takes so long in which each rank gives `bytes`.
 */
static double rate_of(const struct kolo_comm *c, const struct ko_costs *costs, size_t bytes,
		      double ns)
{
	ns -= ns > 2 * costs->turn_ns ? costs->turn_ns : ns / 2;
	return c->nranks * (double)bytes / ns;
}

/* Finds the best way for long payloads on the board, and what their bytes cost. To measure wide
 * ones all of its memory would have to be touched. But they are best where neither of the others is
 * clearly better than the other, and then they are twice as fast as these (why: D190 in
 * comm/DECISIONS.md). Where ranks share processors room in a turn is worth more than lines that
 * stay in the caches, and wide ones have it (D193). Then they are taken to cost what narrow ones do
 * (D214). */
static int measure_board(struct ko_run *run, char *buffer, size_t len, struct ko_costs *costs)
{
	struct kolo_comm *c = run->comm;
	bool shares = c->share > 1;
	size_t bytes = ko_min_size(len, shares ? SHARED_PAYLOAD : LONG_PAYLOAD);
	double narrow, streamed = 0, narrows_fewer = 0, ns;
	size_t fewer;
	int rc;

	bytes = ko_min_size(bytes, ko_board_room(c->board));
	fewer = shares ? bytes : ko_min_size(bytes, FEWER_BYTES);
	costs->board_way = KO_BOARD_WIDE;
	if (c->nranks > (shares ? SHARING_RANKS : MANY_RANKS))
		return 0;
	rc = measure_way(run, KO_BOARD_NARROW, buffer, bytes, &narrow);
	if (rc == 0)
		rc = measure_way(run, KO_BOARD_NARROW, buffer, fewer, &narrows_fewer);
	if (rc == 0)
		rc = measure_way(run, KO_BOARD_STREAMED, buffer, bytes, &streamed);
	if (rc < 0)
		return rc;
	if (shares) /* as many bytes, but their memory was no longer new */
		narrow = narrows_fewer;
	ns = narrow / 2;
	if (CLEARLY * streamed < narrow) {
		costs->board_way = KO_BOARD_STREAMED;
		ns = streamed;
	} else if (shares) {
		ns = narrow;
	} else if (CLEARLY * narrow < streamed) {
		costs->board_way = KO_BOARD_NARROW;
		costs->board_few_bytes_per_ns = rate_of(c, costs, fewer, narrows_fewer);
		ns = narrow;
	}
	costs->board_bytes_per_ns = rate_of(c, costs, bytes, ns);
	return 0;
}

/* If neighbours live on different NUMA nodes: measures the slots near either end, and rank 0
 * chooses one. */
static int place_slots(struct ko_run *run, char *buffer, size_t len)
{
	static const enum ko_role sides[] = { KO_RECV, KO_SEND };
	struct kolo_comm *c = run->comm;
	double ns[2] = { 0, 0 };
	unsigned char better;
	int rc = 0;

	c->agreed.slots_near = KO_RECV; /* where they are at first */
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

/* Can this rank read and write what all others have posted as `buffer`? */
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

/* The best time of reading `len` bytes of prev's buffer, in ns; 0: an error. */
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

/* Measures CMA: is it possible, and how fast? Other ranks read the first half of the buffer. */
static int measure_reading(struct ko_run *run, char *buffer, size_t len)
{
	struct kolo_comm *c = run->comm;
	struct ko_post *mine = &c->roster->post[c->rank];
	size_t half = len / 2;
	int rc;

	memcpy(buffer, c->table[c->rank].token, KO_TOKEN);
	mine->buffer = (uintptr_t)buffer;
	if ((rc = meet(run)) < 0)
		return rc;
	if (can_reach_all(c)) {
		double all = time_reading(c, buffer + half, half);

		mine->read_ns = time_reading(c, buffer + half, KO_TOKEN);
		if (mine->read_ns > 0 && all > 0) /* one of the two may have been disturbed */
			mine->read_bytes_per_ns =
				(double)half / (all > mine->read_ns ? all - mine->read_ns : all);
	}
	return 0;
}

/* Shall links through a network carry all bytes? Yes across hosts, or if one was asked for by
 * name. */
static bool is_network(const struct kolo_comm *c)
{
	return c->spread || (*c->table[0].transport && strcmp(c->table[0].transport, "shm") != 0);
}

/* Rank 0, after all ranks have posted what they measured: decides by the lowest rate and the
 * longest time. */
static void decide(struct kolo_comm *c, const struct ko_costs *costs, struct ko_agreed *out)
{
	*out = c->agreed;
	out->costs = *costs;
	out->costs.read_bytes_per_ns = c->roster->post[0].read_bytes_per_ns;
	out->costs.share = c->share;
	out->costs.network = is_network(c);
	ko_board_set_way(c->board, c->nranks, costs->board_way, 0);
	out->costs.board_room = ko_board_room(c->board);
	out->costs.exchange_room = ko_exchange_room(c);
	out->costs.exchange_hops = ko_bruck_hops(c);
	out->costs.groups = c->shape.ngroups;
	out->costs.rails = c->shape.size;
	out->costs.one_card = ko_rails_share_card(c);
	out->costs.by_processors = c->agreed.packet > 0;
	out->costs.group = ko_doubling_group(c);
	out->costs.group_room = ko_doubling_room((int)out->costs.group);
	out->costs.leaders_room = ko_partials_room(c);
	out->costs.slot_bytes = c->agreed.limits.slot_len;
	out->costs.lane_slot_bytes = KO_LANE_SLOT;
	out->costs.lane_bytes = KO_LANE_SLOTS * KO_LANE_SLOT;
	for (int r = 0; r < c->nranks; r++) {
		const struct ko_post *post = &c->roster->post[r];

		if (post->read_bytes_per_ns < out->costs.read_bytes_per_ns)
			out->costs.read_bytes_per_ns = post->read_bytes_per_ns;
		if (post->read_ns > out->costs.read_ns)
			out->costs.read_ns = post->read_ns;
	}
	ko_algorithm_decide(ko_algorithm_table, c->table[0].algorithm, &out->costs, c->nranks,
			    c->sums, &out->algorithms);
}

/* All ranks get what rank 0 decides. A rank that returns from here knows that all others can return
 * too: a failure of its own afterwards does not end theirs. */
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
	if (rc < 0)
		return rc;
	c->agreed = agreed;
	ko_board_set_way(c->board, c->nranks, agreed.costs.board_way, c->edges.to->writer.limit);
	return 0;
}

_Static_assert(sizeof(struct ko_agreed) <= KO_MIN_SLOT, "it fits into a slot");

/* Sets the links' counts to 0: from now on they count the user's bytes. */
static void forget(struct ko_edges *e)
{
	if (e->to)
		e->to->bytes = e->to->slots = 0;
	if (e->from)
		e->from->bytes = e->from->slots = 0;
}

static int measure_all(struct ko_run *run)
{
	size_t slot = run->comm->agreed.limits.slot_len, len = ko_min_size(slot, PROBE_BYTES);
	struct ko_costs costs = { 0 };
	char *buffer = calloc(1, len);
	int rc;

	if (!buffer)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory to measure its links",
			       run->comm->rank);
	rc = place_slots(run, buffer, len);
	if (rc == 0)
		rc = measure_costs(run, buffer, len, &costs);
	if (rc == 0)
		rc = measure_stores(run, buffer, len);
	if (rc == 0 && !run->comm->spread)
		rc = measure_board(run, buffer, len, &costs);
	if (rc == 0 && !run->comm->spread)
		rc = measure_reading(run, buffer, len);
	if (rc == 0)
		rc = agree(run, &costs);
	free(buffer);
	return rc;
}

/* After two laps each rank knows that all ranks have come here, and can return. */
static int take_over(struct ko_run *run, const struct kolo_comm *like)
{
	struct kolo_comm *c = run->comm;
	int rc = 0;

	c->agreed = like->agreed;
	c->edges.to->writer = like->edges.to->writer;
	ko_board_set_way(c->board, c->nranks, c->agreed.costs.board_way, c->edges.to->writer.limit);
	c->edges.to->bytes_per_ns = like->edges.to->bytes_per_ns;
	if (ko_edges_differ(c))
		rc = ko_edges_settle(run, c->agreed.slots_near);
	if (rc == 0)
		rc = meet(run);
	return rc == 0 ? ko_drain(run) : rc;
}

int ko_probe(struct kolo_comm *c, const struct kolo_comm *like)
{
	/* No operation: its number is 0, and it is not traced. */
	struct ko_run run = { .comm = c, .size = 1, .copy = ko_copy(KOLO_U8) };
	int rc;

	if (c->nranks == 1)
		return 0;
	rc = like ? take_over(&run, like) : measure_all(&run);
	forget(&c->edges);
	if (c->rails) {
		forget(&c->rails->group);
		forget(&c->rails->rail);
	}
	return rc;
}
