/* Moves slots through libfabric (ko_ofi_acquire to ko_ofi_drain). end.h says what lies where in
 * memory. */
#include "comm/transport/ofi/end.h"

#include "comm/base/error.h"
#include "comm/reduce/reduce.h"

#include <stdio.h>
#include <string.h>

static struct ofi_end *end_of(struct ko_link *link)
{
	return (struct ofi_end *)link;
}

int ko_ofi_fail(struct ofi_end *e, const char *doing, int err)
{
	if (e->broken)
		return ko_fail(e->broken, "%s", e->why);
	snprintf(e->why, sizeof(e->why), "ofi (%s): %s: %s",
		 e->info ? e->info->fabric_attr->prov_name : "no provider yet", doing,
		 e->lib.strerror(err));
	e->broken = err == FI_ENOMEM ? KOLO_ENOMEM : KOLO_ESYS;
	return ko_fail(e->broken, "%s", e->why);
}

/* ---- Posting --------------------------------------------------------------------------------- */

static void *desc_of(const struct ofi_end *e)
{
	return e->mr ? fi_mr_desc(e->mr) : NULL;
}

/* Checks what a libfabric call returned. 0; KO_EAGAIN: the provider has no room now; else the
 * link's failure. */
static int posted(struct ofi_end *e, const char *doing, ssize_t rc)
{
	if (rc == -FI_EAGAIN)
		return KO_EAGAIN;
	return rc < 0 ? ko_ofi_fail(e, doing, (int)-rc) : 0;
}

/* Sender: sends slot k. Asks each time for a completion that means that the slot needs no more
 * calls. The provider tcp uses the endpoint's flags for messages, but not for writes: without these
 * flags it would complete a write that it still holds. */
static int post_slot(struct ofi_end *e, uint32_t k)
{
	const uint64_t flags = FI_COMPLETION | FI_TRANSMIT_COMPLETE;
	struct ofi_head *head = ofi_head_at(e, k);
	const struct iovec from = { head, sizeof(*head) + head->len };
	const struct fi_rma_iov to = { e->base + ofi_slot_offset(e, k) - sizeof(*head),
				       from.iov_len, e->key };
	void *desc = desc_of(e), *context = &e->of_slot[k];
	const struct fi_msg_rma write = { &from, &desc, 1, e->peer, &to, 1, context, k };
	const struct fi_msg message = { &from, &desc, 1, e->peer, context, 0 };

	if (e->writes)
		return posted(e, "writing a slot",
			      fi_writemsg(e->ep, &write, flags | FI_REMOTE_CQ_DATA));
	return posted(e, "sending a slot", fi_sendmsg(e->ep, &message, flags));
}

static int post_slots(struct ofi_end *e)
{
	int rc = 0;

	while (e->posted < e->committed &&
	       (rc = post_slot(e, (uint32_t)(e->posted % e->limits.nslots))) == 0)
		e->posted++;
	return rc < 0 ? rc : 0;
}

/* Posts a receive for a note, or for the notice that a slot was written. */
static int post_note(struct ofi_end *e, uint32_t k)
{
	return posted(e, "posting a receive",
		      fi_recv(e->ep, ofi_note_at(e, k), sizeof(uint64_t), desc_of(e),
			      FI_ADDR_UNSPEC, &e->of_note[k]));
}

/* Receiver: posts a receive for each free slot, if slots are messages. */
static int renew_slots(struct ofi_end *e)
{
	size_t len = sizeof(struct ofi_head) + e->limits.slot_len;
	int rc = 0;

	while (!e->writes && rc == 0 && e->renewed < e->released + e->limits.nslots) {
		uint32_t k = (uint32_t)(e->renewed % e->limits.nslots);

		rc = posted(e, "posting a receive",
			    fi_recv(e->ep, ofi_head_at(e, k), len, desc_of(e), FI_ADDR_UNSPEC,
				    &e->of_slot[k]));
		e->renewed += rc == 0;
	}
	return rc < 0 ? rc : 0;
}

/* Receiver: tells the sender which slots it may fill again. Failures are ignored: a sender that has
 * left need not know, and what it sent before may still come. */
static void tell(struct ofi_end *e)
{
	uint64_t free = e->writes ? e->released : e->renewed - e->limits.nslots;

	if (free != e->told && fi_inject(e->ep, &free, sizeof(free), e->peer) != -FI_EAGAIN)
		e->told = free;
}

int ko_ofi_begin(struct ofi_end *e)
{
	bool notes = e->link.role == KO_SEND || (e->writes && e->info->mode & FI_RX_CQ_DATA);
	int rc = 0;

	for (uint32_t k = 0; rc == 0 && notes && k < e->limits.nslots; k++)
		rc = post_note(e, k);
	if (rc == 0 && e->link.role == KO_RECV)
		rc = renew_slots(e);
	return rc == KO_EAGAIN ? ko_ofi_fail(e, "posting receives", FI_EAGAIN) : rc;
}

/* ---- Completions ----------------------------------------------------------------------------- */

static bool is_of(const void *context, const struct fi_context2 of[KO_MAX_SLOTS])
{
	return (uintptr_t)context >= (uintptr_t)of &&
	       (uintptr_t)context < (uintptr_t)(of + KO_MAX_SLOTS);
}

static int take_note(struct ofi_end *e, uint32_t k)
{
	int rc;

	if (e->link.role == KO_SEND && *ofi_note_at(e, k) > e->committed)
		return ko_ofi_fail(e, "reading a note of slots that were never sent", FI_EINVAL);
	if (e->link.role == KO_SEND && *ofi_note_at(e, k) > e->credited)
		e->credited = *ofi_note_at(e, k);
	rc = post_note(e, k);
	return rc == KO_EAGAIN ? ko_ofi_fail(e, "posting a receive", FI_EAGAIN) : rc;
}

static int take(struct ofi_end *e, const struct fi_cq_data_entry *c)
{
	uint32_t k = (uint32_t)c->data % e->limits.nslots;

	if (c->flags & FI_REMOTE_CQ_DATA && e->writes && e->link.role == KO_RECV)
		e->has_arrived[k] = true;
	if (is_of(c->op_context, e->of_note))
		return take_note(e, (uint32_t)((struct fi_context2 *)c->op_context - e->of_note));
	if (c->op_context == &e->of_hello)
		e->state = OFI_JOINED;
	if (!is_of(c->op_context, e->of_slot))
		return 0;
	k = (uint32_t)((struct fi_context2 *)c->op_context - e->of_slot);
	if (e->link.role == KO_RECV) {
		e->has_arrived[k] = true;
	} else if (e->is_flying[k]) {
		e->is_flying[k] = false;
		e->flying--;
	}
	return 0;
}

static int read_failure(struct ofi_end *e)
{
	struct fi_cq_err_entry c = { 0 };
	ssize_t got = fi_cq_readerr(e->cq, &c, 0);

	return got == -FI_EAGAIN ? 0
				 : ko_ofi_fail(e, "a transfer failed", got < 0 ? (int)-got : c.err);
}

int ko_ofi_reap(struct ofi_end *e)
{
	enum { MANY = 16 };
	struct fi_cq_data_entry entries[MANY];
	ssize_t got;
	int rc = 0;

	if (e->broken)
		return ko_fail(e->broken, "%s", e->why);
	do {
		got = fi_cq_read(e->cq, entries, MANY);
		for (ssize_t i = 0; rc == 0 && i < got; i++)
			rc = take(e, &entries[i]);
	} while (rc == 0 && got == MANY);
	if (rc < 0 || got >= 0 || got == -FI_EAGAIN)
		return rc;
	return got == -FI_EAVAIL ? read_failure(e)
				 : ko_ofi_fail(e, "reading completions", (int)-got);
}

/* ---- The table's entries --------------------------------------------------------------------- */

static void step(struct ofi_end *e, size_t len)
{
	e->link.bytes += len;
	e->link.slots++;
	e->at = e->at + 1 == e->limits.nslots ? 0 : e->at + 1;
}

/* Handles completions, and sends what could not be sent at once. */
static int advance_sender(struct ofi_end *e)
{
	int rc = ko_ofi_reap(e);

	return rc < 0 ? rc : post_slots(e);
}

static bool has_room(const struct ofi_end *e)
{
	return e->committed - e->credited < e->limits.nslots && !e->is_flying[e->at];
}

int ko_ofi_acquire(struct ko_link *link, struct ko_slot *out)
{
	struct ofi_end *e = end_of(link);
	int rc = has_room(e) ? 0 : advance_sender(e);

	if (rc < 0)
		return rc;
	if (!has_room(e))
		return KO_EAGAIN;
	*out = (struct ko_slot){ .ptr = e->memory + ofi_slot_offset(e, e->at) };
	return 0;
}

int ko_ofi_commit(struct ko_link *link, const struct ko_slot *slot)
{
	struct ofi_end *e = end_of(link);

	if (link->writer.stores == KO_STREAMING)
		ko_stream_fence();
	*ofi_head_at(e, e->at) = (struct ofi_head){ slot->len, slot->tag, (uint32_t)e->committed };
	e->is_flying[e->at] = true;
	e->flying++;
	e->committed++;
	step(e, slot->len);
	if (!e->broken)
		post_slots(e);
	return 0;
}

/* A slot that has arrived can be used, even if the link has failed since. */
int ko_ofi_peek(struct ko_link *link, void *into, size_t len, struct ko_slot *out)
{
	struct ofi_end *e = end_of(link);
	const struct ofi_head *head = ofi_head_at(e, e->at);
	int rc = e->has_arrived[e->at] ? 0 : ko_ofi_reap(e);

	(void)into;
	(void)len;
	if (!e->has_arrived[e->at])
		return rc < 0 ? rc : KO_EAGAIN;
	if (head->number != (uint32_t)e->released || head->len > e->limits.slot_len)
		return ko_fail(KOLO_ESYS,
			       "ofi (%s): slot %u of %llu bytes came, but slot %u was expected",
			       e->info->fabric_attr->prov_name, head->number,
			       (unsigned long long)head->len, (uint32_t)e->released);
	*out = (struct ko_slot){ .ptr = e->memory + ofi_slot_offset(e, e->at),
				 .len = head->len,
				 .tag = head->tag };
	return 0;
}

/* Tells the sender when half of the slots are free: a note costs as much as a small slot. */
int ko_ofi_release(struct ko_link *link)
{
	struct ofi_end *e = end_of(link);

	e->has_arrived[e->at] = false;
	e->released++;
	step(e, ofi_head_at(e, e->at)->len); /* before the slot may be filled again */
	if (!e->broken && renew_slots(e) == 0 && e->released - e->told >= e->limits.nslots / 2)
		tell(e);
	return 0;
}

int ko_ofi_progress(struct ko_link *link)
{
	struct ofi_end *e = end_of(link);
	int rc;

	if (link->role == KO_SEND)
		return advance_sender(e);
	if ((rc = ko_ofi_reap(e)) == 0 && (rc = renew_slots(e)) == 0)
		tell(e);
	return rc;
}

int ko_ofi_drain(struct ko_link *link)
{
	struct ofi_end *e = end_of(link);
	int rc = e->flying ? advance_sender(e) : 0;

	return rc < 0 || e->flying == 0 ? rc : KO_EAGAIN;
}
