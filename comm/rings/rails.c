/* Makes the links of a shape (ko_rails_connect): chooses interfaces for rails, and checks that they
 * carry what is sent. */
#include "comm/rings/rails.h"

#include "comm/core/edges.h"
#include "comm/rings/slots.h"

#include <stdlib.h>
#include <string.h>

enum {
	MIN_PIECE = 16 << 10,
	MOST_SUMS = 1 << 20, /* bytes of all rounds, unless pieces would be smaller than that */
	PROBE_SLOTS = 4,     /* to see which interface carries them */
};

/* The length of a slot that is at most `len` and, if it has several packets, has whole ones. */
static size_t in_packets(const struct kolo_comm *c, size_t len)
{
	size_t packet = c->agreed.packet;

	return packet && len > packet ? len / packet * packet : len;
}

/* A rank has three times as many links, so slots have a part of what was asked for. */
static size_t part_of_slot(const struct kolo_comm *c, size_t parts)
{
	size_t part = c->agreed.slot_len / parts / KO_MIN_SLOT * KO_MIN_SLOT;

	return part ? part : KO_MIN_SLOT;
}

/* What goes round the ring of all is seldom large. */
size_t ko_rails_ring_slot(const struct kolo_comm *c)
{
	return in_packets(c, part_of_slot(c, 4));
}

static void choose_sizes(const struct kolo_comm *c, struct ko_rails *r)
{
	size_t share = MOST_SUMS / KO_RAILS_DEPTH / (size_t)c->shape.ngroups;

	r->group_slot = part_of_slot(c, 2);
	r->piece = ko_min_size(r->group_slot, share > MIN_PIECE ? share : MIN_PIECE);
	r->piece = in_packets(c, r->piece);
	r->rail_slot = (r->piece + KO_MIN_SLOT - 1) / KO_MIN_SLOT * KO_MIN_SLOT;
	r->memory =
		KO_RAILS_DEPTH * (size_t)c->shape.ngroups * r->piece + ko_rails_spare(&c->shape);
}

/* ---- Interfaces ------------------------------------------------------------------------------ */

static bool is_here(const struct kolo_comm *c, int rank)
{
	return ko_place_same(&c->table[rank].place, &c->table[c->rank].place);
}

/* The place of this rank on its rail: with the interface and the card that it has there, if both
 * neighbours are on other hosts. */
static int place_on_rail(const struct kolo_comm *c, const struct ko_edges *e, int rail,
			 struct ko_place *out)
{
	struct ko_iface iface;
	int rc;

	*out = c->table[c->rank].place;
	if (is_here(c, e->prev) || is_here(c, e->next))
		return 0;
	out->rail_plus_1 = (uint32_t)rail + 1;
	rc = ko_net_rail(rail, &iface);
	if (rc < 0 || !*iface.name)
		return rc;
	out->net = iface.at;
	memcpy(out->iface, iface.name, sizeof(out->iface));
	return 0;
}

/* Every rank of the rail sends some slots to its next one, and then knows that all have come:
 * something goes as many steps as the rail has ranks. */
static int send_some(struct ko_run *run, const struct ko_edges *e, int nranks, size_t slot_len)
{
	struct ko_slot slot;
	int rc = 0;

	for (int k = 0; rc == 0 && k < PROBE_SLOTS + nranks; k++) {
		size_t len = k < PROBE_SLOTS ? slot_len : 1;

		if ((rc = ko_wait_room(run, e, &slot)) < 0)
			return rc;
		memset(slot.ptr, 0, len);
		if ((rc = ko_hand_over(run, e, &slot, len)) < 0 ||
		    (rc = ko_wait_data(run, e, NULL, len, &slot)) < 0)
			return rc;
		rc = ko_give_back(run, e);
	}
	return rc < 0 ? rc : ko_wait_sent(run, e);
}

/* What an interface had carried before its links were made. */
struct carried {
	const char *name;
	bool known;
	uint32_t out, in;
};

static struct carried look_at(const char *name)
{
	struct carried had = { .name = name };

	had.known = *name && ko_net_carried(name, &had.out, &had.in) == 0;
	return had;
}

/* All ranks know it, so all of a rail check together. */
static bool rails_are_named(const struct kolo_comm *c)
{
	for (int r = 0; r < c->nranks; r++)
		if (c->table[r].names_rails)
			return true;
	return false;
}

/* Only TCP needs to be told of several. */
bool ko_rails_share_card(const struct kolo_comm *c)
{
	return c->agreed.packet && !rails_are_named(c);
}

/* Does the interface carry what goes through the links? The kernel may answer through another one
 * if several are in one subnet. */
static int check_interface(struct kolo_comm *c, struct ko_rails *r, const struct carried *had)
{
	/* Not an operation: its number is 0. */
	struct ko_run run = { .comm = c, .size = 1, .copy = ko_copy(KOLO_U8) };
	uint32_t due = PROBE_SLOTS * (uint32_t)r->rail_slot;
	int rc = send_some(&run, &r->rail, c->shape.ngroups, r->rail_slot);
	struct carried now = look_at(had->name);

	r->rail.to->bytes = r->rail.to->slots = 0;
	r->rail.from->bytes = r->rail.from->slots = 0;
	if (rc < 0 || !had->known || !now.known || strcmp(r->rail.to->ops->name, "tcp") != 0 ||
	    (now.out - had->out >= due && now.in - had->in >= due))
		return rc;
	return ko_fail(
		KOLO_EUNREACH,
		"rank %d: of %u bytes each way between it and ranks %d and %d the interface %s "
		"carried %u out and %u in: another one carries the rest. Interfaces of "
		"KOLO_IFACE need subnets of their own, or routes by source address",
		c->rank, due, r->rail.prev, r->rail.next, had->name, now.out - had->out,
		now.in - had->in);
}

/* ---- Links ----------------------------------------------------------------------------------- */

static int make(struct kolo_comm *c, struct ko_rails *r, int64_t deadline)
{
	const struct ko_shape *s = &c->shape;
	int group = ko_shape_group(s, c->rank), rail = ko_shape_rail(s, c->rank), rc = 0;
	struct ko_limits limits = { .slot_len = r->group_slot, .nslots = c->agreed.limits.nslots };
	struct carried had;
	struct ko_place here;

	r->group.prev = ko_shape_rank(s, group, rail - 1);
	r->group.next = ko_shape_rank(s, group, rail + 1);
	r->rail.prev = ko_shape_rank(s, group - 1, rail);
	r->rail.next = ko_shape_rank(s, group + 1, rail);
	if (s->size > 1)
		rc = ko_edges_make(c, &c->table[c->rank].place, &limits, &r->group, deadline);
	if (rc < 0 || s->ngroups == 1 || (rc = place_on_rail(c, &r->rail, rail, &here)) < 0)
		return rc;
	had = look_at(here.iface);
	limits.slot_len = r->rail_slot;
	rc = ko_edges_make(c, &here, &limits, &r->rail, deadline);
	return rc < 0 || !rails_are_named(c) ? rc : check_interface(c, r, &had);
}

int ko_rails_connect(struct kolo_comm *c, int64_t deadline)
{
	if (c->nranks == 1 || !c->shape.size)
		return 0;
	c->rails = calloc(1, sizeof(*c->rails));
	if (!c->rails)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for rails", c->rank);
	choose_sizes(c, c->rails);
	c->rails->sums = malloc(c->rails->memory);
	if (!c->rails->sums)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for %zu bytes of sums", c->rank,
			       c->rails->memory);
	return make(c, c->rails, deadline);
}

static void close_edges(struct ko_edges *e, bool failed)
{
	if (e->to)
		e->to->ops->close(e->to, failed);
	if (e->from)
		e->from->ops->close(e->from, failed);
}

void ko_rails_close(struct ko_rails *r, bool failed)
{
	if (!r)
		return;
	close_edges(&r->group, failed);
	close_edges(&r->rail, failed);
	free(r->sums);
	free(r);
}

static size_t memory_of(const struct ko_edges *e)
{
	return (e->to ? e->to->memory : 0) + (e->from ? e->from->memory : 0);
}

size_t ko_rails_memory(const struct kolo_comm *c)
{
	const struct ko_rails *r = c->rails;

	return r ? r->memory + memory_of(&r->group) + memory_of(&r->rail) : 0;
}

static uint64_t bytes_of(const struct ko_link *link)
{
	return link ? link->bytes : 0;
}

uint64_t ko_rails_sent(const struct kolo_comm *c)
{
	return c->rails ? bytes_of(c->rails->group.to) + bytes_of(c->rails->rail.to) : 0;
}

uint64_t ko_rails_received(const struct kolo_comm *c)
{
	return c->rails ? bytes_of(c->rails->group.from) + bytes_of(c->rails->rail.from) : 0;
}
