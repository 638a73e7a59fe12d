/* Packets through near lanes, by their lines and slots, and through the links of far lanes. */
#include "comm/mail/packet.h"

#include "comm/core/comm.h"
#include "comm/p2p/far.h"
#include "comm/reduce/reduce.h"

#include <string.h>

/* What a packet is in a far lane, before its payload. It begins as the head of a message in far.c
 * does. */
struct head {
	uint64_t n;
	uint32_t type;
	uint32_t over; /* 0: the link goes on */
	uint64_t id, at;
	int32_t tag;
	uint32_t kind;
};

/* Of a line, `small` of a packet that has no payload in it. */
struct numbers {
	uint64_t id, at;
};

enum { LEFT = UINT32_MAX };

_Static_assert(sizeof(struct numbers) <= KO_LANE_SMALL, "a packet without payload is one line");

size_t ko_packet_payload(const struct ko_packet *p)
{
	if (p->kind == KO_MAIL_WHOLE)
		return p->n * kolo_type_size((enum kolo_type)p->type);
	return p->kind == KO_MAIL_CHUNK ? p->n : 0;
}

/* Does the payload lie in the line itself? */
static bool is_in_line(const struct ko_packet *p)
{
	return p->kind == KO_MAIL_WHOLE && ko_packet_payload(p) <= KO_LANE_SMALL;
}

/* ---- Near ------------------------------------------------------------------------------------ */

static int put_near(struct ko_lane_end *end, const struct ko_packet *p, const void *payload)
{
	const struct numbers numbers = { p->id, p->at };
	size_t len = ko_packet_payload(p);
	bool in_slot = len && !is_in_line(p);
	struct ko_line *line = ko_lane_acquire(end, in_slot);

	if (!line)
		return KO_EAGAIN;
	line->tag = (uint32_t)p->tag;
	line->n = p->n;
	line->kind = p->kind;
	line->type = p->type;
	if (p->kind != KO_MAIL_WHOLE)
		memcpy(line->small, &numbers, sizeof(numbers));
	if (len)
		ko_copy_bytes(in_slot ? ko_lane_slot(end) : line->small, payload, len);
	end->has_slots = end->has_slots || in_slot;
	ko_lane_commit(end);
	return 0;
}

static int peek_near(const struct ko_lane_end *end, struct ko_packet *p, const void **payload)
{
	const struct ko_line *line = ko_lane_peek(end);
	struct numbers numbers = { 0 };

	if (!line)
		return KO_EAGAIN;
	*p = (struct ko_packet){
		.n = line->n, .tag = (int32_t)line->tag, .kind = line->kind, .type = line->type
	};
	if (p->kind != KO_MAIL_WHOLE)
		memcpy(&numbers, line->small, sizeof(numbers));
	p->id = numbers.id;
	p->at = numbers.at;
	*payload = is_in_line(p) ? line->small : ko_lane_slot(end);
	return 0;
}

void ko_packet_leave(struct kolo_comm *c, int peer)
{
	struct ko_lane_end *end = c->lanes->ends ? &c->lanes->ends[peer] : NULL;

	if (end && end->lane)
		atomic_store_explicit(&end->lane->answered, LEFT, memory_order_seq_cst);
}

bool ko_packet_left(const struct kolo_comm *c, int peer)
{
	const struct ko_lane_end *end = &c->lanes->ends[c->nranks + peer];

	return end->lane &&
	       atomic_load_explicit(&end->lane->answered, memory_order_seq_cst) == LEFT;
}

/* ---- Far ------------------------------------------------------------------------------------- */

static int put_far(struct ko_link *link, const struct ko_packet *p, const void *payload)
{
	const struct head head = {
		.n = p->n, .type = p->type, .id = p->id, .at = p->at, .tag = p->tag, .kind = p->kind
	};
	size_t len = ko_packet_payload(p);
	struct ko_slot slot;
	int rc = link->ops->acquire(link, &slot);

	if (rc)
		return rc;
	memcpy(slot.ptr, &head, sizeof(head));
	if (len)
		ko_copy_bytes((char *)slot.ptr + sizeof(head), payload, len);
	slot.len = sizeof(head) + len;
	slot.tag = 0;
	return link->ops->commit(link, &slot);
}

static int peek_far(struct ko_link *link, struct ko_packet *p, const void **payload)
{
	struct ko_slot in;
	struct head head;
	int rc = link->ops->peek(link, NULL, 0, &in);

	if (rc)
		return rc;
	if (in.len >= sizeof(head)) {
		memcpy(&head, in.ptr, sizeof(head));
		*p = (struct ko_packet){ .n = head.n,
					 .id = head.id,
					 .at = head.at,
					 .tag = head.tag,
					 .kind = (uint8_t)head.kind,
					 .type = (uint8_t)head.type };
		*payload = (const char *)in.ptr + sizeof(head);
	}
	if (in.len < sizeof(head) || in.len != sizeof(head) + ko_packet_payload(p))
		return ko_fail(KOLO_ESYS, "a packet of %zu bytes came, which is no message",
			       in.len);
	return 0;
}

/* ---- Both ------------------------------------------------------------------------------------ */

/* Finds the lane, and its link if it is a far one: *link is NULL if it is near. */
static int find(struct kolo_comm *c, int peer, bool sends, bool join, struct ko_lane_end **end,
		struct ko_link **link)
{
	int rc = ko_lane_find(c, peer, sends, end);

	*link = NULL;
	return rc < 0 || !(*end)->far ? rc : ko_far_link(c, *end, join, link);
}

/* After an error of a link: its end is the one that has failed. Returns rc. */
static int blame(struct kolo_comm *c, struct ko_lane_end *end, int rc)
{
	if (rc < 0)
		c->lanes->failed = end;
	return rc;
}

int ko_packet_room(struct kolo_comm *c, int peer, bool join, size_t *out)
{
	struct ko_lane_end *end;
	struct ko_link *link;
	int rc = find(c, peer, true, join, &end, &link);

	if (rc == 0)
		*out = link ? ko_far_slot(end) - sizeof(struct head) : KO_LANE_SLOT;
	return rc;
}

int ko_packet_put(struct kolo_comm *c, int peer, const struct ko_packet *p, const void *payload,
		  bool join)
{
	struct ko_lane_end *end;
	struct ko_link *link;
	int rc = find(c, peer, true, join, &end, &link);

	if (rc == 0)
		rc = link ? blame(c, end, put_far(link, p, payload)) : put_near(end, p, payload);
	if (rc == 0)
		c->lanes->sent += ko_packet_payload(p);
	return rc;
}

int ko_packet_drain(struct kolo_comm *c, int peer)
{
	struct ko_lane_end *end;
	struct ko_link *link;
	int rc = find(c, peer, true, false, &end, &link);

	return rc == 0 && link ? blame(c, end, link->ops->drain(link)) : rc;
}

int ko_packet_peek(struct kolo_comm *c, int peer, bool join, struct ko_packet *p,
		   const void **payload)
{
	struct ko_lane_end *end;
	struct ko_link *link;
	int rc = find(c, peer, false, join, &end, &link);

	if (rc)
		return rc;
	return link ? blame(c, end, peek_far(link, p, payload)) : peek_near(end, p, payload);
}

int ko_packet_take(struct kolo_comm *c, int peer)
{
	struct ko_lane_end *end;
	struct ko_link *link;
	int rc = find(c, peer, false, false, &end, &link);

	if (rc == 0 && link)
		return blame(c, end, link->ops->release(link));
	if (rc == 0)
		ko_lane_take(end);
	return rc;
}
