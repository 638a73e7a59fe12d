/* Moves messages on: puts packets into lanes, and takes them out (ko_mail_move). */
#include "comm/mail/mail.h"

#include "comm/core/comm.h"
#include "comm/memory/cma.h"
#include "comm/p2p/far.h"
#include "comm/reduce/reduce.h"

#include <stdlib.h>
#include <string.h>

enum {
	PIECE = 256 << 10, /* bytes of a long message that are read at a time */
	PACKETS = 64,      /* taken from a rank at a time */
};

/* ---- Out ------------------------------------------------------------------------------------- */

/* The first of the list that has this id. NULL: none has. */
static struct kolo_request *find(const struct ko_mail_list *list, uint64_t id)
{
	struct kolo_request *r = list->first;

	while (r && r->id != id)
		r = r->next;
	return r;
}

static int put(struct kolo_mailbox *m, int peer, const struct ko_packet *packet,
	       const void *payload, bool join)
{
	int rc = ko_packet_put(m->comm, peer, packet, payload, join);

	if (rc == 0)
		m->peers[peer].put = true;
	return rc;
}

static int put_notes(struct kolo_mailbox *m, int peer, bool join)
{
	struct ko_mail_peer *p = &m->peers[peer];
	int rc = 0;

	while (p->notes && rc == 0) {
		struct ko_mail_note *note = p->notes;

		rc = put(m, peer, &note->packet, NULL, join);
		if (rc)
			break;
		if (note->then)
			ko_mail_append(&p->leaving, note->then);
		p->notes = note->next;
		free(note);
	}
	return rc;
}

/* Where another process may read the message; 0: nowhere. */
static uint64_t find_address(struct kolo_comm *c, const struct kolo_request *r)
{
	bool can = !c->spread && c->agreed.costs.read_bytes_per_ns > 0 &&
		   ko_cma_offers(c, r->buffer, r->bytes);

	return can ? (uintptr_t)r->buffer : 0;
}

/* Puts a message that is not in the lane yet there: all of it, or that it is a long one. */
static int begin_send(struct kolo_mailbox *m, struct ko_mail_peer *p, struct kolo_request *r,
		      bool join)
{
	struct ko_packet packet = {
		.kind = KO_MAIL_WHOLE, .n = r->n, .tag = r->tag, .type = (uint8_t)r->type
	};
	size_t room, cost = ko_mail_cost(&packet);
	int rc = ko_packet_room(m->comm, r->peer, join, &room);
	bool is_short;

	if (rc)
		return rc;
	is_short = r->bytes <= room && p->unmatched + cost <= KOLO_MAILBOX_KEPT;
	if (!is_short) {
		packet.kind = KO_MAIL_LONG;
		packet.id = r->id = ++m->ids;
		packet.at = find_address(m->comm, r);
	}
	rc = put(m, r->peer, &packet, r->buffer, join);
	if (rc)
		return rc;
	p->queued.first = r->next;
	p->unmatched += is_short ? cost : 0;
	r->stage = KO_MAIL_UNDERWAY;
	ko_mail_append(is_short ? &p->leaving : &p->underway, r);
	return 0;
}

/* Puts the next chunks of a long message into the lane, while there is room. */
static int send_chunks(struct kolo_mailbox *m, struct ko_mail_peer *p, struct kolo_request *r,
		       bool join)
{
	size_t room;
	int rc = ko_packet_room(m->comm, r->peer, join, &room);

	while (rc == 0 && r->moved < r->bytes) {
		size_t rest = r->bytes - r->moved;
		struct ko_packet packet = { .kind = KO_MAIL_CHUNK,
					    .id = r->id,
					    .n = rest < room ? rest : room };

		rc = put(m, r->peer, &packet, r->buffer + r->moved, join);
		if (rc == 0)
			r->moved += packet.n;
	}
	if (rc == 0) {
		ko_mail_remove(&p->underway, r);
		ko_mail_append(&p->leaving, r);
	}
	return rc;
}

/* Sees to it that what was put into the lane is on its way. Then the requests that leave are over.
 */
static int let_leave(struct kolo_mailbox *m, int peer)
{
	struct ko_mail_peer *p = &m->peers[peer];
	int rc = p->put ? ko_packet_drain(m->comm, peer) : KO_EAGAIN;

	if (rc)
		return rc;
	p->put = false;
	while (p->leaving.first) {
		struct kolo_request *r = p->leaving.first;

		p->leaving.first = r->next;
		ko_mail_finish(r);
	}
	return 0;
}

/* Must the rank still do something, whatever others do? */
static bool needs(const struct ko_mail_peer *p)
{
	return p->awaited || p->matched.first || p->queued.first || p->underway.first ||
	       p->leaving.first;
}

static int put_all(struct kolo_mailbox *m, int peer, bool join)
{
	struct ko_mail_peer *p = &m->peers[peer];
	struct kolo_request *r, *next;
	int rc = put_notes(m, peer, join), moved = KO_EAGAIN;

	while (rc == 0 && p->queued.first) {
		rc = begin_send(m, p, p->queued.first, join);
		moved = rc == 0 ? 0 : moved;
	}
	for (r = p->underway.first; r && rc >= 0; r = next) {
		size_t before = r->moved;

		next = r->next;
		if (r->stage != KO_MAIL_FLOWING)
			continue;
		rc = send_chunks(m, p, r, join);
		moved = r->moved != before ? 0 : moved;
		if (rc)
			break;
	}
	if (rc < 0)
		return rc;
	rc = let_leave(m, peer);
	return rc == KO_EAGAIN ? moved : rc;
}

/* Moves on what goes to a rank. */
static int move_out(struct kolo_mailbox *m, int peer, bool join)
{
	struct ko_mail_peer *p = &m->peers[peer];
	int rc = put_all(m, peer, join);

	if (rc >= 0 || needs(p))
		return rc;
	while (p->notes) { /* it has left, and misses nothing */
		struct ko_mail_note *note = p->notes;

		if (note->then)
			ko_mail_finish(note->then);
		p->notes = note->next;
		free(note);
	}
	p->put = false;
	return KO_EAGAIN;
}

/* ---- In -------------------------------------------------------------------------------------- */

/* More of a long message has come. */
static int take_chunk(struct ko_mail_peer *p, const struct ko_packet *packet, const void *payload)
{
	struct kolo_request *r = find(&p->matched, packet->id);

	if (!r || packet->n > r->bytes - r->moved)
		return ko_fail(KOLO_ESYS, "a part of a message came that nobody asked for");
	ko_copy_bytes(r->buffer + r->moved, payload, packet->n);
	r->moved += packet->n;
	if (r->moved < r->bytes)
		return 0;
	ko_mail_remove(&p->matched, r);
	ko_mail_finish(r);
	return 0;
}

/* The receiver of a long message says to send it, or that it is done. */
static int take_answer(struct ko_mail_peer *p, const struct ko_packet *packet)
{
	struct kolo_request *r = find(&p->underway, packet->id);

	if (!r)
		return ko_fail(KOLO_ESYS, "an answer came to a message that was not sent");
	if (packet->kind == KO_MAIL_GO) {
		r->stage = KO_MAIL_FLOWING;
		return 0;
	}
	ko_mail_remove(&p->underway, r);
	ko_mail_finish(r);
	return 0;
}

static int take_packet(struct kolo_mailbox *m, int peer, const struct ko_packet *packet,
		       const void *payload)
{
	struct ko_mail_peer *p = &m->peers[peer];

	switch (packet->kind) {
	case KO_MAIL_WHOLE:
	case KO_MAIL_LONG: return ko_mail_arrive(m, peer, packet, payload, NULL);
	case KO_MAIL_CHUNK: return take_chunk(p, packet, payload);
	case KO_MAIL_MATCHED: p->unmatched -= packet->n; return 0;
	default: return take_answer(p, packet);
	}
}

/* Reads the next piece of a long message where it lies in the sender's process. */
static int read_piece(struct kolo_mailbox *m, int peer, struct kolo_request *r)
{
	size_t rest = r->bytes - r->moved, len = rest < PIECE ? rest : PIECE;
	struct kolo_comm *c = m->comm;
	char them[KO_RANK_TEXT];
	int rc = ko_cma_read(c, peer, r->at + r->moved, r->buffer + r->moved, len);

	if (rc == 0 && ko_packet_left(c, peer))
		rc = ko_fail(KOLO_EPEER, "%s left a mailbox while it sent to rank %d",
			     ko_comm_name(c, peer, them), c->rank);
	/* After a failure the sender may use that memory for other things. */
	if (rc == 0)
		rc = ko_mail_cause(m);
	if (rc < 0)
		return rc;
	r->moved += len;
	if (r->moved < r->bytes)
		return 0;
	ko_mail_remove(&m->peers[peer].matched, r);
	return ko_mail_tell(m, peer, (struct ko_packet){ .kind = KO_MAIL_DONE, .id = r->id }, r);
}

/* Moves on what comes from a rank. */
static int move_in(struct kolo_mailbox *m, int peer, bool join)
{
	struct ko_mail_peer *p = &m->peers[peer];
	int rc = 0, moved = KO_EAGAIN;

	for (int k = 0; k < PACKETS && rc == 0; k++) {
		struct ko_packet packet;
		const void *payload;

		rc = ko_packet_peek(m->comm, peer, join, &packet, &payload);
		if (rc == 0)
			rc = take_packet(m, peer, &packet, payload);
		if (rc == 0)
			rc = ko_packet_take(m->comm, peer);
		if (rc == 0)
			moved = 0;
	}
	if (rc >= 0 && p->matched.first && p->matched.first->at) {
		rc = read_piece(m, peer, p->matched.first);
		moved = 0;
	}
	if (rc < 0 && !needs(p)) { /* it has left, and closed its end */
		p->closed = true;
		rc = 0;
	}
	return rc < 0 ? rc : moved;
}

/* ---- All ------------------------------------------------------------------------------------- */

/* May the rank send something that matters here? */
static bool may_send(const struct kolo_mailbox *m, const struct ko_mail_peer *p)
{
	if (p->closed && !needs(p))
		return false;
	return m->anyones || p->awaited || p->underway.first || p->matched.first ||
	       p->unmatched > KOLO_MAILBOX_KEPT / 2;
}

static bool has_to_send(const struct ko_mail_peer *p)
{
	return p->notes || p->queued.first || p->underway.first || p->put;
}

bool ko_mail_needs(const struct kolo_mailbox *m, int rank)
{
	const struct ko_mail_peer *p = &m->peers[rank];
	struct ko_lifelines *ll = m->comm->lifelines;
	const struct ko_life *life;
	int gone = 0;

	if (needs(p) || !m->anyones)
		return needs(p);
	/* A receive from any rank: another rank may still send, unless all have left. */
	for (int k = 0; (life = ko_lifelines_gone(ll, &k)); k++) {
		if (life->rank == rank && life->state == KO_LIFE_DEAD)
			return true;
		gone++;
	}
	return gone >= m->comm->nranks - 1;
}

int ko_mail_move(struct kolo_mailbox *m, bool drives, int *failed)
{
	struct kolo_comm *c = m->comm;
	int moved = KO_EAGAIN, rc = drives && c->spread ? ko_far_listen(c) : 0;

	*failed = -1;
	for (int r = 0; r < c->nranks && rc >= 0; r++) {
		const struct ko_mail_peer *p = &m->peers[r];

		if (r == c->rank)
			continue;
		if (may_send(m, p) && (rc = move_in(m, r, drives)) == 0)
			moved = 0;
		if (rc >= 0 && has_to_send(p) && (rc = move_out(m, r, drives)) == 0)
			moved = 0;
		if (rc < 0)
			*failed = r;
	}
	if (rc < 0)
		return rc;
	if (moved == 0)
		ko_bells_ring(c->bells, c->rank, c->nranks);
	return moved;
}
