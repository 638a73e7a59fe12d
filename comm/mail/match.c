/* Matches messages with receives, and keeps those that come before their receive. */
#include "comm/mail/mail.h"

#include "comm/core/comm.h"

#include <stdlib.h>
#include <string.h>

/* ---- What a short message costs -------------------------------------------------------------- */

size_t ko_mail_cost(const struct ko_packet *packet)
{
	return sizeof(struct ko_arrived) + ko_packet_payload(packet);
}

int ko_mail_tell(struct kolo_mailbox *m, int peer, struct ko_packet packet,
		 struct kolo_request *then)
{
	struct ko_mail_peer *p = &m->peers[peer];
	struct ko_mail_note *note = malloc(sizeof(*note));

	if (!note)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for an answer to rank %d",
			       m->comm->rank, peer);
	*note = (struct ko_mail_note){ .packet = packet, .then = then };
	*(p->notes ? p->notes_end : &p->notes) = note;
	p->notes_end = &note->next;
	return 0;
}

/* A short message has matched. Its sender learns that when it is worth a packet. */
static int count_matched(struct kolo_mailbox *m, int peer, const struct ko_packet *packet)
{
	struct ko_mail_peer *p = &m->peers[peer];
	uint64_t owed = p->owed += ko_mail_cost(packet);

	if (owed < KOLO_MAILBOX_KEPT / 2)
		return 0;
	p->owed = 0;
	return ko_mail_tell(m, peer, (struct ko_packet){ .kind = KO_MAIL_MATCHED, .n = owed },
			    NULL);
}

/* ---- Matching -------------------------------------------------------------------------------- */

static bool matches(const struct kolo_request *r, int peer, int tag)
{
	return (r->peer == KOLO_ANY_RANK || r->peer == peer) &&
	       (r->tag == KOLO_ANY_TAG || r->tag == tag);
}

/* Does the message fit the receive? If it doesn't, the receive has failed. */
static bool fits(struct kolo_request *r, int peer, const struct ko_packet *p)
{
	const char *type = kolo_type_name((enum kolo_type)p->type);
	const struct kolo_comm *c = r->mailbox->comm;
	char them[KO_RANK_TEXT], me[KO_RANK_TEXT];

	if (p->type == r->type && p->n <= r->n)
		return true;
	ko_fail(KOLO_EMISMATCH,
		"ranks disagree: %s sends n=%llu %s with tag %d to %s, which waits for %s%zu %s; the message is "
		"dropped",
		ko_comm_name(c, peer, them), (unsigned long long)p->n, type ? type : "?", p->tag,
		ko_comm_name(c, c->rank, me), p->type == r->type ? "at most n=" : "n=", r->n,
		kolo_type_name(r->type));
	ko_mail_refuse(r, KOLO_EMISMATCH);
	return false;
}

/* Begins to receive a long message. */
static int begin_long(struct kolo_mailbox *m, struct kolo_request *r, int peer,
		      const struct ko_packet *p)
{
	r->id = p->id;
	r->at = p->at;
	r->bytes = p->n * kolo_type_size(r->type);
	r->stage = KO_MAIL_UNDERWAY;
	ko_mail_append(&m->peers[peer].matched, r);
	if (r->at)
		return 0;
	return ko_mail_tell(m, peer, (struct ko_packet){ .kind = KO_MAIL_GO, .id = p->id }, NULL);
}

/* Gives a message to the receive that it matches. */
static int deliver(struct kolo_mailbox *m, struct kolo_request *r, int peer,
		   const struct ko_packet *p, const void *payload, struct kolo_request *own)
{
	bool good = fits(r, peer, p), is_long = p->kind == KO_MAIL_LONG && !own;
	const void *from = own ? own->buffer : payload;
	size_t bytes = p->n * kolo_type_size((enum kolo_type)p->type);

	r->got = (struct kolo_received){ .peer = peer, .tag = p->tag, .n = p->n };
	if (is_long && good)
		return begin_long(m, r, peer, p);
	if (is_long)
		return ko_mail_tell(m, peer,
				    (struct ko_packet){ .kind = KO_MAIL_DONE, .id = p->id }, r);
	if (good && bytes)
		memmove(r->buffer, from, bytes);
	ko_mail_finish(r);
	if (own)
		ko_mail_finish(own);
	return own ? 0 : count_matched(m, peer, p);
}

int ko_mail_arrive(struct kolo_mailbox *m, int peer, const struct ko_packet *packet,
		   const void *payload, struct kolo_request *own)
{
	size_t len = own ? 0 : ko_packet_payload(packet);
	struct kolo_request *r = m->receives.first;
	struct ko_arrived *kept;

	while (r && !matches(r, peer, packet->tag))
		r = r->next;
	if (r) {
		ko_mail_cancel(m, r);
		return deliver(m, r, peer, packet, payload, own);
	}
	kept = malloc(sizeof(*kept) + len);
	if (!kept)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for a message from rank %d",
			       m->comm->rank, peer);
	*kept = (struct ko_arrived){ .peer = peer, .packet = *packet, .own = own };
	if (len)
		memcpy(kept->bytes, payload, len);
	m->kept += sizeof(*kept) + len;
	*(m->arrived ? m->arrived_end : &m->arrived) = kept;
	m->arrived_end = &kept->next;
	return 0;
}

/* Takes a message out of those that have arrived, and frees it. `link` points to it. */
static void drop(struct kolo_mailbox *m, struct ko_arrived **link)
{
	struct ko_arrived *at = *link;

	*link = at->next;
	if (!at->next)
		m->arrived_end = link;
	m->kept -= sizeof(*at) + (at->own ? 0 : ko_packet_payload(&at->packet));
	free(at);
}

int ko_mail_receive(struct kolo_mailbox *m, struct kolo_request *r)
{
	struct ko_arrived **link = &m->arrived;
	int rc;

	while (*link && !matches(r, (*link)->peer, (*link)->packet.tag))
		link = &(*link)->next;
	if (!*link) {
		ko_mail_await(m, r);
		return 0;
	}
	rc = deliver(m, r, (*link)->peer, &(*link)->packet, (*link)->bytes, (*link)->own);
	drop(m, link);
	return rc;
}

void ko_mail_forget(struct kolo_mailbox *m)
{
	while (m->arrived)
		drop(m, &m->arrived);
}
