/* Moves messages through the slots of links, part by part (ko_link_send_part,
 * ko_link_recv_part). */
#include "comm/p2p/by_link.h"

#include "comm/rings/slots.h"

enum { MIN_BYTES = 128 << 10, MIN_PART = 64 << 10, PARTS = 4 };

/* Both ends cut a message into the same parts. There are several, so that a receiver that does not
 * send begins early. */
static size_t next_part(const struct kolo_comm *c, const struct ko_transfer *t)
{
	size_t len = t->bytes / PARTS < MIN_PART ? MIN_PART : t->bytes / PARTS;

	return ko_min_size(ko_min_size(len, c->agreed.limits.slot_len), t->bytes - t->moved);
}

bool ko_link_carries(const struct ko_run *run, const struct ko_transfer *t)
{
	const struct ko_edges *e = &run->comm->edges;

	return run->by_link && t->bytes >= MIN_BYTES && t->peer == e->next && e->to->ops->settle;
}

int ko_link_send_part(struct ko_run *run, struct ko_transfer *t)
{
	const struct ko_edges *e = &run->comm->edges;
	size_t len = next_part(run->comm, t);
	struct ko_slot slot;
	int rc = e->to->ops->acquire(e->to, &slot);

	if (rc != 0)
		return rc;
	ko_writer_begin(&e->to->writer, len);
	ko_stores_copy(e->to->writer.stores, slot.ptr, t->buffer + t->moved, len);
	ko_writer_end(&e->to->writer);
	t->moved += len;
	return ko_hand_over(run, e, &slot, len);
}

int ko_link_recv_part(struct ko_run *run, struct ko_transfer *t)
{
	const struct ko_edges *e = &run->comm->edges;
	size_t len = next_part(run->comm, t);
	struct ko_slot slot;
	int rc = e->from->ops->peek(e->from, NULL, len, &slot);

	if (rc == 0)
		rc = ko_check_slot(run, e, len, &slot);
	if (rc != 0)
		return rc;
	ko_run_copy(run, t->buffer + t->moved, slot.ptr, len);
	t->moved += len;
	return ko_give_back(run, e);
}
