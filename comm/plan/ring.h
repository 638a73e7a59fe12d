/* The ring: which rank comes after which. The ranks of one host stand together, the lowest first.
 * Hosts come in the order of their lowest ranks. So one edge leads into each host and one out of
 * it, for any numbering of the ranks. */
#ifndef COMM_PLAN_RING_H
#define COMM_PLAN_RING_H

struct ko_ring {
	int nranks;
	/* The rank at each place, and the place of each rank; NULL if each rank's place is its
	 * number, for example on one host */
	int *ranks, *places;
};

/* Makes the ring of nranks ranks. host[r] is the lowest rank on the host of rank r; `host` is NULL
 * if all ranks share one host. Ranks stand in the order of their numbers unless another order has
 * fewer edges between hosts. So the ring is the same on one host and on several, as long as each
 * host has ranks with successive numbers.
 *
 * Takes time linear in nranks. The caller frees *out with ko_ring_free. Errors: KOLO_ENOMEM. */
int ko_ring_make(const int *host, int nranks, struct ko_ring *out);
void ko_ring_free(struct ko_ring *ring);

static inline int ko_ring_place(const struct ko_ring *ring, int rank)
{
	return ring->places ? ring->places[rank] : rank;
}

/* The rank `steps` places before this one; after it if steps is negative. -nranks <= steps <=
 * nranks. */
static inline int ko_ring_back(const struct ko_ring *ring, int rank, int steps)
{
	int place = ko_ring_place(ring, rank) - steps;

	if (place < 0)
		place += ring->nranks;
	else if (place >= ring->nranks)
		place -= ring->nranks;
	return ring->ranks ? ring->ranks[place] : place;
}

/* The neighbours: data flows from prev to next. */
static inline int ko_ring_prev(const struct ko_ring *ring, int rank)
{
	return ko_ring_back(ring, rank, 1);
}

static inline int ko_ring_next(const struct ko_ring *ring, int rank)
{
	return ko_ring_back(ring, rank, -1);
}

/* Steps from one rank on to another, in the direction of data: 0 to nranks - 1. */
static inline int ko_ring_distance(const struct ko_ring *ring, int from, int to)
{
	int steps = ko_ring_place(ring, to) - ko_ring_place(ring, from);

	return steps < 0 ? steps + ring->nranks : steps;
}

#endif
