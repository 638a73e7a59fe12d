/* See probe.h. */
#include "probe.h"

#include "clock.h"
#include "moves.h"
#include "watch.h"

#include <stdlib.h>

enum {
	PROBE_SLOTS = 8,
	PROBE_BYTES = 64 << 10, /* of a slot, where slots are as large */
	REPEATS = 3,            /* the best counts: the first one warms up, and others may be disturbed */
	LAPS = 8,
	MANY_RANKS = 64, /* more have a quarter of the laps */
};

/* A token goes once round the ring. Whoever has it knows what all ranks before it did before; rank 0 what all did. */
static int lap(struct ko_run *run)
{
	uint64_t token = 0;
	int rc;

	if (run->comm->rank != 0)
		return ko_keep_and_pass(run, &token, sizeof(token));
	rc = ko_send(run, run->copy, &token, sizeof(token));
	return rc < 0 ? rc : ko_keep(run, &token, sizeof(token));
}

/* Rank 0 gets the time of a hop, the others run along. */
static int measure_hop(struct ko_run *run, double *hop_ns)
{
	int nranks = run->comm->nranks, laps = nranks > MANY_RANKS ? LAPS / 4 : LAPS, rc = 0;

	for (int k = 0; rc == 0 && k < laps; k++) {
		int64_t begin = ko_now_ns();
		double took;

		rc = lap(run);
		took = (double)(ko_now_ns() - begin) / nranks;
		if (k == 0 || took < *hop_ns)
			*hop_ns = took;
	}
	return rc;
}

/* Slots go over every other edge of the ring at a time: those from ranks of this parity. */
static int send_some(struct ko_run *run, int parity, void *buffer, size_t len, double *bytes_per_ns)
{
	int rank = run->comm->rank, prev = ko_ring_prev(rank, run->comm->nranks), rc = lap(run);
	int64_t begin = ko_now_ns();
	double rate;

	for (int k = 0; rc == 0 && k < PROBE_SLOTS; k++) {
		if (rank % 2 == parity)
			rc = ko_send(run, run->copy, buffer, len);
		if (rc == 0 && prev % 2 == parity)
			rc = ko_keep(run, buffer, len);
	}
	rate = PROBE_SLOTS * (double)len / (double)(ko_now_ns() - begin);
	if (rank % 2 == parity && rate > *bytes_per_ns)
		*bytes_per_ns = rate;
	return rc;
}

/* The rate to next with each kind of stores, and the better kind for it. */
static int measure_stores(struct ko_run *run, void *buffer, size_t len)
{
	struct ko_link *link = run->comm->to_next;
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

static int try_agreed(void *what)
{
	struct ko_agreed *agreed = what;

	/* Pairs with the release in decide. */
	return atomic_load_explicit(&agreed->ready, memory_order_acquire) ? 0 : KO_EAGAIN;
}

/* Rank 0, when all have posted their rates. */
static void decide(struct kolo_comm *c, double hop_ns)
{
	struct ko_agreed *agreed = &c->roster->agreed;

	agreed->costs = (struct ko_costs){ .hop_ns = hop_ns, .bytes_per_ns = c->to_next->bytes_per_ns };
	for (int r = 1; r < c->nranks; r++)
		if (c->roster->post[r].bytes_per_ns < agreed->costs.bytes_per_ns)
			agreed->costs.bytes_per_ns = c->roster->post[r].bytes_per_ns;
	ko_algorithm_decide(c->table[0].algorithm, &agreed->costs, c->nranks, ko_board_room(c->nranks),
			    &agreed->algorithms);
	atomic_store_explicit(&agreed->ready, 1, memory_order_release);
}

/* Who is through here knows that everyone else can be: what it fails with later is no failure of theirs in here. */
static int agree(struct ko_run *run, double hop_ns)
{
	struct kolo_comm *c = run->comm;
	int rc;

	c->roster->post[c->rank].bytes_per_ns = c->to_next->bytes_per_ns;
	rc = lap(run);
	if (rc == 0 && c->rank == 0)
		decide(c, hop_ns);
	if (rc == 0)
		rc = ko_wait(run, 0, "the roster", KO_TRACE_DATA, try_agreed, &c->roster->agreed);
	if (rc == 0)
		c->algorithms = c->roster->agreed.algorithms;
	return rc;
}

/* What is counted from now on is the user's. */
static void forget(struct ko_link *link)
{
	link->bytes = link->slots = 0;
}

int ko_probe(struct kolo_comm *c)
{
	/* Not an operation: its number is 0, and nobody traces it. */
	struct ko_run run = { .comm = c, .size = 1, .copy = ko_copy(KOLO_U8) };
	size_t len = c->limits.slot_len < PROBE_BYTES ? c->limits.slot_len : PROBE_BYTES;
	double hop_ns = 0;
	void *buffer;
	int rc;

	if (c->nranks == 1)
		return 0;
	buffer = calloc(1, len);
	if (!buffer)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory to measure its links", c->rank);
	rc = measure_hop(&run, &hop_ns);
	if (rc == 0)
		rc = measure_stores(&run, buffer, len);
	if (rc == 0)
		rc = agree(&run, hop_ns);
	free(buffer);
	forget(c->to_next);
	forget(c->from_prev);
	return rc;
}
