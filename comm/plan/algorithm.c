/* The cost model of the ring, the board, direct access and the exchange, and the table of sizes that follows from it
 * (ko_algorithm_decide). See algorithm.h. */
#include "comm/plan/algorithm.h"

#include <math.h>
#include <string.h>

int ko_algorithm_known(const char *name)
{
	return !*name || strcmp(name, "ring") == 0 || strcmp(name, "board") == 0 ||
	       strcmp(name, "direct") == 0 || strcmp(name, "exchange") == 0;
}

/* Round the ring a collective of K bytes costs hops * hop_ns + K * crossings / bytes_per_ns. Crossings are the bytes, as a
 * share of K, that are written for another rank or read from another, one after the other until the last rank has its
 * result. On the board and directly hops are turns, of turn_ns. What the system reads or writes costs calls *
 * read_ns + K * crossings / read_bytes_per_ns. */
struct cost {
	double hops, crossings;
	double calls; /* of the system, to read or write */
};

static struct cost ring_cost(enum ko_coll coll, double n)
{
	switch (coll) {
	case KO_ALL_REDUCE: return (struct cost){ 2 * (n - 1), 4 * (n - 1) / n, 0 };
	case KO_REDUCE_SCATTER:
	case KO_ALL_GATHER: return (struct cost){ n - 1, 2 * (n - 1) / n, 0 };
	case KO_BROADCAST: /* a message of one slot is all in one rank of the chain, then all in the next */
	case KO_REDUCE: return (struct cost){ n - 1, 2 * (n - 1), 0 };
	default: return (struct cost){ n - 1, 0, 0 };
	}
}

static struct cost board_cost(enum ko_coll coll, double n)
{
	switch (coll) {
	case KO_ALL_REDUCE: return (struct cost){ 1, 1 + (n - 1), 0 };
	case KO_REDUCE_SCATTER: return (struct cost){ 1, 1 + (n - 1) / n, 0 };
	case KO_ALL_GATHER: return (struct cost){ 1, 1 / n + (n - 1) / n, 0 };
	case KO_BROADCAST: return (struct cost){ 1, 2, 0 };
	case KO_REDUCE: return (struct cost){ 1, n, 0 };
	default: return (struct cost){ 1, 0, 0 };
	}
}

/* Where all ranks read or write each other's plain memory at a time their calls hold each other up in the system, which
 * costs about two turns for either. */
static struct cost direct_cost(enum ko_coll coll, double n, bool windows)
{
	switch (coll) {
	case KO_ALL_REDUCE: return (struct cost){ windows ? 2 : 6, 2 * (n - 1) / n, 2 * (n - 1) };
	case KO_REDUCE_SCATTER:
	case KO_ALL_GATHER: return (struct cost){ windows ? 2 : 4, (n - 1) / n, n - 1 };
	case KO_BROADCAST: return (struct cost){ 2, 1, 1 };
	case KO_REDUCE: return (struct cost){ 2, windows ? 1 : n - 1, n - 1 };
	default: return (struct cost){ 2, 0, 0 };
	}
}

/* A cost as a line over K. */
struct line {
	double fixed, slope;
};

static double lesser(double a, double b)
{
	return a < b ? a : b;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* From how many bytes on is `a` cheaper than `b`? */
static double crossing(struct line a, struct line b)
{
	if (a.slope >= b.slope)
		return a.fixed < b.fixed ? 0 : HUGE_VAL;
	return a.fixed <= b.fixed ? 0 : (a.fixed - b.fixed) / (b.slope - a.slope);
}

static uint64_t whole_bytes(double bytes)
{
	return bytes < 1e18 ? (uint64_t)bytes + (bytes > (double)(uint64_t)bytes) : UINT64_MAX;
}

/* The most bytes of a whole vector for which a cell has room. */
static uint64_t most_bytes(enum ko_coll coll, int nranks, size_t room)
{
	return coll == KO_ALL_GATHER ? room * (uint64_t)nranks : room;
}

/* Bytes from which on reading is tried, whatever was measured: operations will tell. */
enum { LARGE = 1 << 20 };

/* Where the collective goes from one algorithm to another, `most` bytes at most through the board. */
struct ends {
	uint64_t board, read, window;
};

static struct ends find_ends(enum ko_coll coll, const struct ko_costs *costs, int nranks, uint64_t most)
{
	struct cost r = ring_cost(coll, nranks), b = board_cost(coll, nranks);
	struct cost w = direct_cost(coll, nranks, true), p = direct_cost(coll, nranks, false);
	double turn = costs->turn_ns, rate = costs->bytes_per_ns;
	struct line ring = { r.hops * costs->hop_ns, r.crossings / rate };
	struct line board = { b.hops * turn, b.crossings / rate };
	struct line window = { w.hops * turn, w.crossings / rate };
	struct line read = { p.hops * turn + p.calls * costs->read_ns,
			     p.crossings / costs->read_bytes_per_ns };
	double end = lesser(crossing(ring, board), (double)most + 1), from;
	struct ends out = { .read = UINT64_MAX };

	out.window = whole_bytes(larger(crossing(window, ring), lesser(crossing(window, board), end)));
	if (costs->read_bytes_per_ns > 0) {
		from = lesser(larger(crossing(read, ring), lesser(crossing(read, board), end)), LARGE);
		out.read = whole_bytes(from);
		end = lesser(end, from);
	}
	out.board = whole_bytes(end);
	return out;
}

/* Between two ranks: in slots half of the writing goes on while what was written before is read; an offer is made, and ended. */
static void decide_offers(const char *name, const struct ko_costs *costs, struct ko_algorithms *out)
{
	double turn = costs->turn_ns, byte = 1 / costs->bytes_per_ns;
	struct line slots = { turn, 1.5 * byte }, window = { 2 * turn, byte / 2 };
	struct line read = { 2 * turn + costs->read_ns, 1 / costs->read_bytes_per_ns };
	bool can_read = costs->read_bytes_per_ns > 0, force = strcmp(name, "direct") == 0;
	/* Nothing is learnt of messages. From here on they fill their lane and wait for the receiver anyway. */
	uint64_t large = costs->lane_bytes + 1;

	out->rndv_begin = out->rndv_window_begin = UINT64_MAX;
	if ((*name != 0 || costs->network) && !force)
		return;
	out->rndv_window_begin = force ? 1 : whole_bytes(lesser(crossing(window, slots), (double)large));
	if (can_read && costs->crowded && !force) /* what fits into a lane need not wait */
		out->rndv_begin = large;
	else if (can_read)
		out->rndv_begin = force ? 1 : whole_bytes(lesser(crossing(read, slots), (double)large));
}

/* Half of an all-reduce's hops round the ring, or fewer, and whole vectors; a barrier needs fewer with shortcuts only. Where
 * there is shared memory the board is better. */
static uint64_t exchange_end(enum ko_coll coll, const char *name, const struct ko_costs *costs, int nranks)
{
	bool forced = strcmp(name, "exchange") == 0;
	double n = nranks, most = (double)costs->exchange_room + 1;
	struct cost r = ring_cost(KO_ALL_REDUCE, n);
	struct line ring = { r.hops * costs->hop_ns, r.crossings / costs->bytes_per_ns };
	struct line whole = { (double)costs->exchange_hops * costs->hop_ns,
			      2 * (n - 1) / costs->bytes_per_ns };

	if (nranks == 1 || !(forced || (*name == 0 && costs->network)))
		return 0;
	if (coll == KO_ALL_REDUCE)
		return forced ? (uint64_t)most : whole_bytes(lesser(crossing(ring, whole), most));
	return coll == KO_BARRIER && costs->exchange_hops < nranks - 1;
}

void ko_algorithm_decide(const char *name, const struct ko_costs *costs, int nranks, size_t room,
			 struct ko_algorithms *out)
{
	bool board =
		(*name == 0 && !costs->network) || strcmp(name, "board") == 0 || strcmp(name, "direct") == 0;

	out->must_read = strcmp(name, "direct") == 0;
	decide_offers(name, costs, out);
	for (int k = 0; k < KO_NCOLLS; k++) {
		enum ko_coll coll = (enum ko_coll)k;
		uint64_t most = most_bytes(coll, nranks, room);
		struct ends e = { 0, UINT64_MAX, UINT64_MAX };

		if (nranks > 1 && *name == 0 && !costs->network)
			e = find_ends(coll, costs, nranks, most);
		else if (nranks > 1 && strcmp(name, "board") == 0)
			e.board = most + 1;
		else if (nranks > 1 && out->must_read)
			e = (struct ends){ 0, costs->read_bytes_per_ns > 0 ? 1 : UINT64_MAX, 1 };
		if (coll == KO_BARRIER) /* of no bytes */
			e = (struct ends){ board && nranks > 1, UINT64_MAX, UINT64_MAX };
		out->board_end[k] = e.board;
		out->exchange_end[k] = exchange_end(coll, name, costs, nranks);
		out->read_begin[k] = e.read;
		out->window_begin[k] = e.window;
	}
}
