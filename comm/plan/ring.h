/* The ring: which rank comes after which. The ranks of a host stand together in it, the lowest first, and hosts in the order of
 * their lowest ranks: one edge leads into each host and one out of it, whatever the ranks' numbers are. */
#ifndef COMM_PLAN_RING_H
#define COMM_PLAN_RING_H

struct ko_ring {
	int nranks;
	/* Who stands at a place, and where a rank stands; NULL where each rank's place is its number, as on one host */
	int *ranks, *places;
};

/* The ring of nranks ranks. host[r] is the lowest rank on the host of rank r; NULL if all ranks share one host. The ring visits
 * ranks by number if no other order has fewer edges between hosts. So where a job runs changes nothing as long as each host
 * gets ranks with successive numbers. Linear in nranks. The caller frees *out. Errors: KOLO_ENOMEM. */
int ko_ring_make(const int *host, int nranks, struct ko_ring *out);
void ko_ring_free(struct ko_ring *ring);

static inline int ko_ring_place(const struct ko_ring *ring, int rank)
{
	return ring->places ? ring->places[rank] : rank;
}

/* The rank `steps` before this one, after it where they are negative; from -nranks to nranks. */
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

/* Steps from one rank on to another, fewer than nranks. */
static inline int ko_ring_distance(const struct ko_ring *ring, int from, int to)
{
	int steps = ko_ring_place(ring, to) - ko_ring_place(ring, from);

	return steps < 0 ? steps + ring->nranks : steps;
}

#endif
