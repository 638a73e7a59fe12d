/* The links of Bruck's all-gather (ko_bruck_connect), and the all-gather itself
 * (ko_bruck_gather). */
#include "comm/rings/bruck.h"

#include "comm/core/edges.h"
#include "comm/reduce/reduce.h"
#include "comm/rings/moves.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 8 }; /* hops of KO_BRUCK_RANKS */

_Static_assert(1 << MOST == KO_BRUCK_RANKS, "as many as there can be");

/* The edges of all hops. The first hop uses the ring's own. */
struct ko_bruck {
	int nhops;
	int waits_for; /* the rank that an operation under way waits for */
	struct ko_edges hops[MOST];
};

/* The addresses of a rank's ends, for the others. */
struct ends {
	unsigned char to[MOST][sizeof(((struct ko_address *)0)->bytes)];
	unsigned char from[MOST][sizeof(((struct ko_address *)0)->bytes)];
};

_Static_assert(sizeof(struct ends) <= KO_MIN_SLOT, "it goes in a slot");

static int count_hops(int nranks)
{
	int hops = 0;

	while (1 << hops < nranks)
		hops++;
	return hops;
}

/* From 4 ranks on there are fewer hops than round the ring. If ranks share a host, most hops of the
 * ring are in shared memory, and fast. All ranks decide alike. */
static bool are_wanted(const struct kolo_comm *c)
{
	const char *forced = c->table[0].transport;
	bool network = *forced && strcmp(forced, "shm") != 0;

	if (c->nranks < 4 || c->nranks > KO_BRUCK_RANKS || (!network && !c->spread))
		return false;
	for (int a = 0; !network && a < c->nranks; a++)
		for (int b = 0; b < a; b++)
			if (ko_place_same(&c->table[a].place, &c->table[b].place))
				return false;
	return true;
}

/* ---- Making ---------------------------------------------------------------------------------- */

static int open_hop(struct kolo_comm *c, struct ko_edges *e, struct ends *mine, int k)
{
	const struct ko_limits limits = { .slot_len = KO_BRUCK_SLOT, .nslots = 2, .single = 1 };
	const struct ko_place *here = &c->table[c->rank].place;
	const struct ko_link_ops *in, *out;
	struct ko_address to, from;
	int rc;

	e->next = ko_ring_back(&c->ring, c->rank, -(1 << k));
	e->prev = ko_ring_back(&c->ring, c->rank, 1 << k);
	if ((rc = ko_edge_transport(c, e->prev, c->rank, &in)) < 0 ||
	    (rc = ko_edge_transport(c, c->rank, e->next, &out)) < 0 ||
	    (rc = ko_link_open(in, KO_RECV, here, &limits, &e->from)) < 0 ||
	    (rc = ko_link_open(out, KO_SEND, here, &limits, &e->to)) < 0 ||
	    (rc = in->address(e->from, &from)) < 0 || (rc = out->address(e->to, &to)) < 0)
		return rc;
	memcpy(mine->to[k], to.bytes, sizeof(to.bytes));
	memcpy(mine->from[k], from.bytes, sizeof(from.bytes));
	return 0;
}

/* The all-gather round the ring: everyone's n elements move on by one rank at a time. */
static int go_round(struct ko_run *run, char *memory, size_t n)
{
	int rank = run->comm->rank, nranks = run->comm->nranks;
	size_t len = n * run->size;
	int rc = ko_send(run, run->copy, memory + (size_t)rank * len, NULL, n);

	for (int k = 1; rc == 0 && k < nranks - 1; k++)
		rc = ko_keep_and_pass(
			run, memory + (size_t)ko_ring_back(&run->comm->ring, rank, k) * len, n);
	return rc < 0 ? rc
		      : ko_keep(run, memory + (size_t)ko_ring_next(&run->comm->ring, rank) * len,
				n);
}

static struct ko_end end_of(struct ko_link *link, int peer, const unsigned char *address)
{
	struct ko_end end = { .link = link, .peer = peer, .address.fd = -1 };

	memcpy(end.address.bytes, address, sizeof(end.address.bytes));
	return end;
}

static int join_all(struct kolo_comm *c, const struct ends *all)
{
	struct ko_end ends[2 * MOST];
	int n = 0, rc;

	for (int k = 1; k < c->bruck->nhops; k++) {
		const struct ko_edges *e = &c->bruck->hops[k];

		ends[n++] = end_of(e->from, e->prev, all[e->prev].to[k]);
		ends[n++] = end_of(e->to, e->next, all[e->next].from[k]);
	}
	rc = ko_edges_join(c, ends, n);
	for (int k = 1; rc == 0 && k < c->bruck->nhops; k++)
		rc = ko_edges_pair(c, &c->bruck->hops[k]);
	return rc;
}

static int make(struct kolo_comm *c, struct ends *all)
{
	/* Not an operation: its number is 0. */
	struct ko_run run = { .comm = c, .size = 1, .copy = ko_copy(KOLO_U8) };
	int rc = 0;

	c->bruck->nhops = count_hops(c->nranks);
	c->bruck->hops[0] = c->edges;
	for (int k = 1; rc == 0 && k < c->bruck->nhops; k++)
		rc = open_hop(c, &c->bruck->hops[k], &all[c->rank], k);
	if (rc == 0)
		rc = go_round(&run, (char *)all, sizeof(*all));
	if (rc == 0)
		rc = ko_drain(&run);
	return rc < 0 ? rc : join_all(c, all);
}

int ko_bruck_connect(struct kolo_comm *c)
{
	struct ends *all;
	int rc;

	if (!are_wanted(c))
		return 0;
	c->bruck = calloc(1, sizeof(*c->bruck));
	all = calloc((size_t)c->nranks, sizeof(*all));
	rc = all && c->bruck ? make(c, all)
			     : ko_fail(KOLO_ENOMEM, "rank %d: no memory for shortcuts", c->rank);
	free(all);
	return rc;
}

void ko_bruck_close(struct ko_bruck *s, bool failed)
{
	for (int k = 1; s && k < MOST; k++) {
		if (s->hops[k].to)
			s->hops[k].to->ops->close(s->hops[k].to, failed);
		if (s->hops[k].from)
			s->hops[k].from->ops->close(s->hops[k].from, failed);
	}
	free(s);
}

/* ---- Using ----------------------------------------------------------------------------------- */

int ko_bruck_hops(const struct kolo_comm *c)
{
	return c->bruck ? c->bruck->nhops : c->nranks - 1;
}

size_t ko_bruck_room(const struct kolo_comm *c)
{
	return c->bruck ? KO_BRUCK_SLOT / (((size_t)c->nranks + 1) / 2) : SIZE_MAX;
}

/* Copies the parts of `count` ranks, `last` and those before it, out of the slot (`in`) or into
 * it. */
static void copy_parts(const struct ko_ring *ring, char *slot, char *memory, size_t len, int last,
		       int count, bool in)
{
	for (int i = 0; i < count; i++) {
		char *part = memory + (size_t)ko_ring_back(ring, last, i) * len,
		     *at = slot + (size_t)i * len;

		ko_copy_bytes(in ? part : at, in ? at : part, len);
	}
}

static bool waits_for(const struct kolo_comm *c, int rank)
{
	return c->bruck->waits_for == rank;
}

/* One hop. This rank has the parts of `count` ranks: itself and those before it. It gets the parts
 * of the `count` ranks before those. */
static int hop(struct ko_run *run, const struct ko_edges *e, char *memory, size_t len, int count)
{
	const struct ko_ring *ring = &run->comm->ring;
	int rank = run->comm->rank, rc;
	int *peer = &run->comm->bruck->waits_for;
	struct ko_slot slot;

	*peer = e->next;
	if ((rc = ko_wait_room(run, e, &slot)) < 0)
		return rc;
	*peer = e->prev;
	copy_parts(ring, slot.ptr, memory, len, rank, count, false);
	if ((rc = ko_hand_over(run, e, &slot, (size_t)count * len)) < 0 ||
	    (rc = ko_wait_data(run, e, NULL, (size_t)count * len, &slot)) < 0)
		return rc;
	copy_parts(ring, slot.ptr, memory, len, e->prev, count, true);
	*peer = e->next;
	rc = ko_give_back(run, e);
	return rc < 0 ? rc : ko_wait_sent(run, e);
}

int ko_bruck_gather(struct ko_run *run, char *memory, size_t n)
{
	const struct ko_bruck *s = run->comm->bruck;
	int rc = 0;

	if (!s)
		return go_round(run, memory, n);
	/* This rank does not know of all others what they have finished. A rank matters while it is
	 * waited for. */
	run->needs = waits_for;
	for (int k = 0; rc == 0 && k < s->nhops; k++) {
		int has = 1 << k, missing = run->comm->nranks - has;

		rc = hop(run, &s->hops[k], memory, n * run->size, has < missing ? has : missing);
	}
	run->needs = NULL;
	return rc;
}

uint64_t ko_bruck_sent(const struct kolo_comm *c)
{
	uint64_t bytes = 0;

	for (int k = 1; c->bruck && k < c->bruck->nhops; k++)
		bytes += c->bruck->hops[k].to->bytes;
	return bytes;
}

uint64_t ko_bruck_received(const struct kolo_comm *c)
{
	uint64_t bytes = 0;

	for (int k = 1; c->bruck && k < c->bruck->nhops; k++)
		bytes += c->bruck->hops[k].from->bytes;
	return bytes;
}

size_t ko_bruck_memory(const struct kolo_comm *c)
{
	size_t bytes = 0;

	for (int k = 1; c->bruck && k < c->bruck->nhops; k++)
		bytes += c->bruck->hops[k].to->memory + c->bruck->hops[k].from->memory;
	return bytes;
}
