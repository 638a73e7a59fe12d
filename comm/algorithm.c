/* See algorithm.h. */
#include "algorithm.h"

#include <string.h>

int ko_algorithm_known(const char *name)
{
	return !*name || strcmp(name, "ring") == 0 || strcmp(name, "board") == 0;
}

/* A collective of K bytes costs hops * hop_ns + K * crossings / bytes_per_ns. Crossings are the bytes, as a share of K,
 * that are written for another rank or read from another, one after the other until the last rank has its result. At a
 * link's one-way rate, at which one rank writes while the other reads, either takes 1 / bytes_per_ns. */
struct cost {
	double hops, crossings;
};

static struct cost ring_cost(enum ko_coll coll, double n)
{
	switch (coll) {
	case KO_ALL_REDUCE: return (struct cost){ 2 * (n - 1), 4 * (n - 1) / n };
	case KO_REDUCE_SCATTER:
	case KO_ALL_GATHER: return (struct cost){ n - 1, 2 * (n - 1) / n };
	case KO_BROADCAST: /* a message of one slot is all in one rank of the chain, then all in the next */
	case KO_REDUCE: return (struct cost){ n - 1, 2 * (n - 1) };
	default: return (struct cost){ n - 1, 0 };
	}
}

static struct cost board_cost(enum ko_coll coll, double n)
{
	switch (coll) {
	case KO_ALL_REDUCE: return (struct cost){ 1, 1 + (n - 1) };
	case KO_REDUCE_SCATTER: return (struct cost){ 1, 1 + (n - 1) / n };
	case KO_ALL_GATHER: return (struct cost){ 1, 1 / n + (n - 1) / n };
	case KO_BROADCAST: return (struct cost){ 1, 2 };
	case KO_REDUCE: return (struct cost){ 1, n };
	default: return (struct cost){ 1, 0 };
	}
}

/* The most bytes of a whole vector for which a cell has room. */
static uint64_t most_bytes(enum ko_coll coll, int nranks, size_t room)
{
	return coll == KO_ALL_GATHER ? room * (uint64_t)nranks : room;
}

void ko_algorithm_decide(const char *name, const struct ko_costs *costs, int nranks, size_t room,
			 struct ko_algorithms *out)
{
	for (int coll = 0; coll < KO_NCOLLS; coll++) {
		uint64_t most = most_bytes((enum ko_coll)coll, nranks, room);
		struct cost ring = ring_cost((enum ko_coll)coll, nranks);
		struct cost board = board_cost((enum ko_coll)coll, nranks);
		double saved = (ring.hops - board.hops) * costs->hop_ns;
		double extra = (board.crossings - ring.crossings) / costs->bytes_per_ns;

		if (nranks == 1 || strcmp(name, "ring") == 0)
			most = 0;
		else if (*name == 0 && extra > 0 && saved / extra < (double)most)
			most = (uint64_t)(saved / extra);
		out->board_end[coll] = most ? most + 1 : 0;
	}
}
