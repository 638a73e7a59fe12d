/* Waits for slots (ko_wait_data, ko_wait_room), and finds out why a link has failed. */
#include "comm/rings/slots.h"

#include "comm/core/edges.h"
#include "comm/core/wait.h"

#include <stdio.h>

/* What is waited for. DATA: a slot from prev. ROOM: a free slot to next. SENT: that what was sent
 * needs no further call. */
enum awaited { DATA, ROOM, SENT };

struct slot_wait {
	const struct ko_run *run;
	struct ko_link *link, *other;
	int peer, beyond; /* the ranks at the other ends of link and other */
	enum awaited what;
	void *into; /* DATA: see peek in link.h */
	size_t len;
	struct ko_slot *out;
	const struct ko_link *failed; /* NULL: neither */
};

static bool is_needed(const struct slot_wait *w, int rank)
{
	const struct ko_waiter waiter = ko_run_waiter(w->run);

	return ko_wait_needs(&waiter, rank);
}

static int try_link(const struct slot_wait *w)
{
	switch (w->what) {
	case DATA: return w->link->ops->peek(w->link, w->into, w->len, w->out);
	case ROOM: return w->link->ops->acquire(w->link, w->out);
	default: return w->link->ops->drain(w->link);
	}
}

/* The other link matters as long as its rank does. What was sent to that rank, and is lost,
 * is what this rank waits for here in the end. */
static int try_slot(void *what)
{
	struct slot_wait *w = what;
	int rc = try_link(w), beyond;

	w->failed = rc < 0 ? w->link : NULL;
	if (rc != KO_EAGAIN)
		return rc;
	beyond = w->other->ops->progress(w->other);
	if (beyond == 0 || !is_needed(w, w->beyond))
		return KO_EAGAIN;
	w->failed = w->other;
	return beyond;
}

int ko_slot_failed(struct ko_run *run, const struct ko_broken *f, int code)
{
	const struct ko_waiter waiter = ko_run_waiter(run);
	char why[KO_TEXT];
	bool had_left;
	int rc;

	ko_edge_fail(run->comm, f->link, f->peer, code);
	snprintf(why, sizeof(why), "%s", kolo_last_error());
	rc = ko_wait_for_cause(&waiter, f->awaited, f->peer, f->link->ops->name);
	if (rc < 0)
		return rc;
	had_left = !ko_wait_needs(&waiter, f->peer); /* it did its part first */
	if (had_left && f->beside)
		return KO_EAGAIN;
	return f->sent && (had_left || ko_lifelines_lost(run->comm->lifelines, f->awaited))
		       ? 0
		       : ko_fail(code, "%s", why);
}

static int wait_slot(struct ko_run *run, const struct ko_edges *e, enum awaited what, void *into,
		     size_t len, struct ko_slot *out)
{
	bool in = what == DATA;
	struct slot_wait w = { .run = run,
			       .link = in ? e->from : e->to,
			       .other = in ? e->to : e->from,
			       .peer = in ? e->prev : e->next,
			       .beyond = in ? e->next : e->prev,
			       .what = what,
			       .into = into,
			       .len = len,
			       .out = out };
	enum ko_trace_kind kind = in ? KO_TRACE_DATA : KO_TRACE_ROOM;
	int rc;

	do {
		rc = ko_wait(run, w.peer, w.link->ops->name, kind, try_slot, &w);
		if (w.failed)
			rc = ko_slot_failed(
				run,
				&(struct ko_broken){ .link = w.failed,
						     .peer = w.failed == w.link ? w.peer : w.beyond,
						     .awaited = w.peer,
						     .beside = w.failed == w.other,
						     .sent = what == SENT },
				rc);
	} while (rc == KO_EAGAIN);
	return rc;
}

int ko_wait_data(struct ko_run *run, const struct ko_edges *e, void *into, size_t len,
		 struct ko_slot *in)
{
	int rc = wait_slot(run, e, DATA, into, len, in);

	return rc < 0 ? rc : ko_check_slot(run, e, len, in);
}

int ko_check_slot(struct ko_run *run, const struct ko_edges *e, size_t len,
		  const struct ko_slot *in)
{
	struct kolo_comm *c = run->comm;

	if (in->tag != run->tag)
		return ko_wait_mismatch(c, &run->desc, e->prev, in->tag);
	if (in->len != len)
		return ko_fail(
			KOLO_ESYS,
			"rank %d: the %s link from rank %d brought %zu bytes where %zu were due",
			c->rank, e->from->ops->name, e->prev, in->len, len);
	return 0;
}

int ko_wait_room(struct ko_run *run, const struct ko_edges *e, struct ko_slot *out)
{
	return wait_slot(run, e, ROOM, NULL, 0, out);
}

int ko_wait_sent(struct ko_run *run, const struct ko_edges *e)
{
	return wait_slot(run, e, SENT, NULL, 0, NULL);
}

int ko_hand_over(struct ko_run *run, const struct ko_edges *e, struct ko_slot *out, size_t len)
{
	struct kolo_comm *c = run->comm;
	int rc;

	out->len = len;
	out->tag = run->tag;
	rc = e->to->ops->commit(e->to, out);
	ko_bells_ring(c->bells, c->rank, c->nranks);
	return rc;
}

int ko_give_back(struct ko_run *run, const struct ko_edges *e)
{
	struct kolo_comm *c = run->comm;
	int rc = e->from->ops->release(e->from);

	ko_bells_ring(c->bells, c->rank, c->nranks);
	return rc;
}
