/* Makes the ring (ko_ring_make): finds whether ranks must be grouped by host, and groups them. */
#include "comm/plan/ring.h"

#include "comm/base/error.h"

#include <stdlib.h>

static int count_hosts(const int *host, int nranks)
{
	int hosts = 0;

	for (int r = 0; r < nranks; r++)
		hosts += host[r] == r;
	return hosts;
}

/* The edges between hosts if ranks stand in the order of their numbers. */
static int count_crossings(const int *host, int nranks)
{
	int edges = 0;

	for (int r = 0; r < nranks; r++)
		edges += host[r] != host[(r + 1) % nranks];
	return edges;
}

/* Orders ranks by host, and by number within a host. next[0..nranks) must be zero. It first counts
 * the ranks of each host, then holds the place of the next rank of each host. */
static void arrange(const int *host, int *next, struct ko_ring *ring)
{
	for (int r = 0; r < ring->nranks; r++)
		next[host[r]]++;
	for (int h = 0, place = 0; h < ring->nranks; h++) {
		int ranks = next[h];

		next[h] = place;
		place += ranks;
	}
	for (int r = 0; r < ring->nranks; r++) {
		int place = next[host[r]]++;

		ring->ranks[place] = r;
		ring->places[r] = place;
	}
}

int ko_ring_make(const int *host, int nranks, struct ko_ring *out)
{
	int crossings = host ? count_crossings(host, nranks) : 0, *next;

	*out = (struct ko_ring){ .nranks = nranks };
	if (crossings <= 2 || crossings == count_hosts(host, nranks))
		return 0;
	next = calloc((size_t)nranks, sizeof(*next));
	out->ranks = malloc(2 * (size_t)nranks * sizeof(*out->ranks));
	if (!next || !out->ranks) {
		free(next);
		ko_ring_free(out);
		return ko_fail(KOLO_ENOMEM, "no memory for a ring of %d ranks", nranks);
	}
	out->places = out->ranks + nranks;
	arrange(host, next, out);
	free(next);
	return 0;
}

void ko_ring_free(struct ko_ring *ring)
{
	free(ring->ranks);
	ring->ranks = ring->places = NULL;
}
