/* See ring.h. */
#include "ring.h"

#include "boot.h"
#include "error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A rank, where it runs, and the lowest rank there. */
struct seat {
	const char *machine;
	int rank, first;
};

static int by_machine(const void *a, const void *b)
{
	const struct seat *x = a, *y = b;
	int order = strcmp(x->machine, y->machine);

	return order ? order : x->rank - y->rank;
}

static int by_first(const void *a, const void *b)
{
	const struct seat *x = a, *y = b;

	return x->first == y->first ? x->rank - y->rank : x->first - y->first;
}

/* Orders the seats as the ring goes. */
static void arrange(struct seat *seats, int nranks)
{
	qsort(seats, (size_t)nranks, sizeof(*seats), by_machine);
	for (int k = 0; k < nranks; k++) {
		bool same = k > 0 && strcmp(seats[k].machine, seats[k - 1].machine) == 0;

		seats[k].first = same ? seats[k - 1].first : seats[k].rank;
	}
	qsort(seats, (size_t)nranks, sizeof(*seats), by_first);
}

static int count_hosts(const struct seat *seats, int nranks)
{
	int hosts = 0;

	for (int k = 0; k < nranks; k++)
		hosts += k == 0 || seats[k].first != seats[k - 1].first;
	return hosts;
}

/* Edges between hosts when ranks stand in the order of their numbers. */
static int count_crossings(const struct ko_entry *table, int nranks)
{
	int edges = 0;

	for (int r = 0; r < nranks; r++)
		edges += !ko_place_same(&table[r].place, &table[(r + 1) % nranks].place);
	return edges;
}

int ko_ring_make(const struct ko_entry *table, int nranks, struct ko_ring *out)
{
	struct seat *seats;
	int crossings = count_crossings(table, nranks);

	*out = (struct ko_ring){ .nranks = nranks };
	if (crossings <= 2)
		return 0;
	seats = malloc((size_t)nranks * sizeof(*seats));
	out->ranks = malloc(2 * (size_t)nranks * sizeof(*out->ranks));
	if (!seats || !out->ranks) {
		free(seats);
		ko_ring_free(out);
		return ko_fail(KOLO_ENOMEM, "no memory for a ring of %d ranks", nranks);
	}
	out->places = out->ranks + nranks;
	for (int r = 0; r < nranks; r++)
		seats[r] = (struct seat){ .machine = table[r].place.machine, .rank = r };
	arrange(seats, nranks);
	for (int k = 0; k < nranks; k++) {
		out->ranks[k] = seats[k].rank;
		out->places[seats[k].rank] = k;
	}
	if (crossings == count_hosts(seats, nranks))
		ko_ring_free(out);
	free(seats);
	return 0;
}

void ko_ring_free(struct ko_ring *ring)
{
	free(ring->ranks);
	ring->ranks = ring->places = NULL;
}
