/* Decides which edges are slow: those far from the best one. The median would not do. With two
 * edges it is their mean, and the slower edge cannot be twice that. If half of the edges are slow,
 * the median is slow too. */
#include "tools/ringinfo/ringinfo.h"

#include <string.h>

struct edge find_best(const struct edge *edges, int n)
{
	struct edge best = edges[0];

	for (int i = 1; i < n; i++) {
		best.rate = edges[i].rate > best.rate ? edges[i].rate : best.rate;
		best.latency = edges[i].latency < best.latency ? edges[i].latency : best.latency;
	}
	return best;
}

bool edge_is_slow(const struct edge *e, const struct edge *best)
{
	return e->rate < best->rate / 2 ||
	       (e->latency > best->latency * 2 && e->latency > SLOW_LATENCY_FLOOR_US);
}

int count_crowd(const struct job *j, int rank)
{
	int n = 0;

	for (int r = 0; r < j->nranks; r++) {
		bool here = strcmp(j->ranks[r].host, j->ranks[rank].host) == 0;

		if (here && r < rank)
			return 0; /* counted at that rank */
		n += here;
	}
	return n > j->ranks[rank].processors ? n : 0;
}
