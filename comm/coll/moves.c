/* The moves of a ring (ko_moves_now), and waiting for slots. An addition reads prev's slot and the
 * own buffer, and writes next's slot, in one pass. */
#include "comm/coll/moves.h"

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

static int peer_of_failed(const struct slot_wait *w)
{
	return w->failed == w->link ? w->peer : w->beyond;
}

/* Did the rank at the other end of the failed link do its part, and leave? */
static bool had_left(const struct slot_wait *w)
{
	return !is_needed(w, peer_of_failed(w));
}

/* A link failed with `code`. Ranks that know the cause get some time to report it.
 *
 * A rank that had done its part and left needs nothing. Then this returns KO_EAGAIN if it is at the
 * end of the other link, and 0 if the link was to be drained. This rank may have no lifeline to
 * that rank. Then nobody reports here that it left. If it died, ranks with a lifeline to it report
 * that. */
static int tell_failure(struct ko_run *run, const struct slot_wait *w, int code)
{
	const struct ko_waiter waiter = ko_run_waiter(run);
	char why[KO_TEXT];
	int rc;

	ko_edge_fail(run->comm, w->failed, peer_of_failed(w), code);
	snprintf(why, sizeof(why), "%s", kolo_last_error());
	rc = ko_wait_for_cause(&waiter, w->peer, peer_of_failed(w), w->failed->ops->name);
	if (rc < 0)
		return rc;
	if (had_left(w) && w->failed == w->other)
		return KO_EAGAIN;
	return w->what == SENT && (had_left(w) || ko_lifelines_lost(run->comm->lifelines, w->peer))
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
			rc = tell_failure(run, &w, rc);
	} while (rc == KO_EAGAIN);
	return rc;
}

int ko_wait_data(struct ko_run *run, const struct ko_edges *e, void *into, size_t len,
		 struct ko_slot *in)
{
	struct kolo_comm *c = run->comm;
	int rc = wait_slot(run, e, DATA, into, len, in);

	if (rc < 0)
		return rc;
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

/* ---- Round the ring -------------------------------------------------------------------------- */

/* dst = fn(src). The pointers of an empty piece may be NULL. */
static void fill(const struct ko_run *run, enum ko_stores stores, ko_fill_fn *fn, void *dst,
		 const void *src, size_t n)
{
	if (n && stores == KO_STREAMING && dst != src && fn == run->copy)
		ko_stream_copy(dst, src, n * run->size);
	else if (n && stores == KO_STREAMING && dst != src)
		ko_stream_fill(fn, dst, src, n, run->size, &run->red.s);
	else if (n)
		fn(dst, src, n, &run->red.s);
}

static void combine(const struct ko_run *run, enum ko_stores stores, void *dst, const void *in,
		    const void *own, size_t n)
{
	if (n && stores == KO_STREAMING && dst != own)
		ko_stream_combine(run->red.combine, dst, in, own, n, run->size, &run->red.s);
	else if (n)
		run->red.combine(dst, in, own, n, &run->red.s);
}

/* A link knows offers by their place in the stream of slots. So a rank that gets no pieces must not
 * make one. */
void ko_offer(struct ko_run *run, void *dst)
{
	struct ko_link *to = run->comm->edges.to, *from = run->comm->edges.from;
	bool gets = run->desc.coll != KO_BROADCAST || run->comm->rank != run->desc.root;
	size_t len = run->plan.count * run->size;

	run->vector = dst;
	ko_link_begin(to);
	ko_link_begin(from);
	if (gets && !from->anywhere && ko_link_takes(from, dst, len))
		from->ops->rma->offer(from, dst, len);
}

/* The place of a piece in the vector that next gets: 1 + its offset in bytes. 0: it has none. */
static size_t belongs(const struct ko_run *run, const void *to)
{
	return run->vector && to ? 1 + (size_t)((const char *)to - run->vector) : 0;
}

int ko_send(struct ko_run *run, ko_fill_fn *fn, const void *src, const void *to, size_t n)
{
	const struct ko_edges *e = &run->comm->edges;
	struct ko_slot out;
	int rc = ko_wait_room(run, e, &out);

	if (rc < 0)
		return rc;
	out.belongs = belongs(run, to);
	if (fn == run->copy && ko_link_takes(e->to, src, n * run->size))
		out.ptr = (void *)src;
	else
		fill(run, e->to->stores, fn, out.ptr, src, n);
	return ko_hand_over(run, e, &out, n * run->size);
}

int ko_add_and_pass(struct ko_run *run, const void *own, size_t n)
{
	const struct ko_edges *e = &run->comm->edges;
	struct ko_slot in, out;
	int rc;

	if ((rc = ko_wait_data(run, e, NULL, n * run->size, &in)) < 0 ||
	    (rc = ko_wait_room(run, e, &out)) < 0)
		return rc;
	combine(run, e->to->stores, out.ptr, in.ptr, own, n);
	if ((rc = ko_hand_over(run, e, &out, n * run->size)) < 0)
		return rc;
	return ko_give_back(run, e);
}

int ko_add_and_keep(struct ko_run *run, const void *own, void *dst, size_t n)
{
	const struct ko_edges *e = &run->comm->edges;
	struct ko_slot in;
	int rc = ko_wait_data(run, e, NULL, n * run->size, &in);

	if (rc < 0)
		return rc;
	combine(run, run->stores, dst, in.ptr, own, n);
	fill(run, KO_ORDINARY, run->red.finish, dst, dst, n);
	return ko_give_back(run, e);
}

/* The result is sent on before it is kept, because next waits for it. It stays in the slot until
 * this rank acquires that slot again. If the link takes data from anywhere, the result is sent from
 * dst. */
int ko_add_keep_and_pass(struct ko_run *run, const void *own, void *dst, size_t n)
{
	const struct ko_edges *e = &run->comm->edges;
	bool taken = ko_link_takes(e->to, dst, n * run->size);
	struct ko_slot in, out;
	int rc;

	if ((rc = ko_wait_data(run, e, NULL, n * run->size, &in)) < 0 ||
	    (rc = ko_wait_room(run, e, &out)) < 0)
		return rc;
	out.belongs = belongs(run, dst);
	if (taken)
		out.ptr = dst;
	combine(run, taken ? KO_ORDINARY : e->to->stores, out.ptr, in.ptr, own, n);
	fill(run, KO_ORDINARY, run->red.finish, out.ptr, out.ptr, n);
	if ((rc = ko_hand_over(run, e, &out, n * run->size)) < 0 || (rc = ko_give_back(run, e)) < 0)
		return rc;
	if (!taken)
		fill(run, run->stores, run->copy, dst, out.ptr, n);
	return 0;
}

/* What comes in is sent on before it is kept, because next waits for it. */
int ko_keep_and_pass(struct ko_run *run, void *dst, size_t n)
{
	const struct ko_edges *e = &run->comm->edges;
	bool taken = ko_link_takes(e->to, dst, n * run->size);
	struct ko_slot in, out;
	int rc;

	if ((rc = ko_wait_data(run, e, dst, n * run->size, &in)) < 0 ||
	    (rc = ko_wait_room(run, e, &out)) < 0)
		return rc;
	out.belongs = belongs(run, dst);
	if (taken)
		out.ptr = dst;
	fill(run, taken ? KO_ORDINARY : e->to->stores, run->copy, out.ptr, in.ptr, n);
	if ((rc = ko_hand_over(run, e, &out, n * run->size)) < 0)
		return rc;
	if (!taken)
		fill(run, run->stores, run->copy, dst, in.ptr, n);
	return ko_give_back(run, e);
}

int ko_keep(struct ko_run *run, void *dst, size_t n)
{
	const struct ko_edges *e = &run->comm->edges;
	struct ko_slot in;
	int rc = ko_wait_data(run, e, dst, n * run->size, &in);

	if (rc < 0)
		return rc;
	fill(run, run->stores, run->copy, dst, in.ptr, n);
	return ko_give_back(run, e);
}

int ko_keep_own(struct ko_run *run, void *dst, const void *src, size_t n)
{
	fill(run, run->stores, run->copy, dst, src, n);
	return 0;
}

int ko_drain(struct ko_run *run)
{
	const struct ko_edges *e = &run->comm->edges;

	return e->to ? ko_wait_sent(run, e) : 0;
}

const struct ko_moves ko_moves_now = {
	.send = ko_send,
	.add_and_pass = ko_add_and_pass,
	.add_and_keep = ko_add_and_keep,
	.add_keep_and_pass = ko_add_keep_and_pass,
	.keep_and_pass = ko_keep_and_pass,
	.keep = ko_keep,
	.keep_own = ko_keep_own,
};
