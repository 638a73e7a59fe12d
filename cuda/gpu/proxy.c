/* The proxy of staged edges (ko_gpu_proxy_move).
 *
 * It sends parcels: a head, then the bytes of one slot, in as many slots of the link as that takes.
 * The head names the slot. The other proxy waits until that slot is empty.
 *
 * The sending proxy looks at its slots in turn, beginning after the last one sent. A stream can't
 * fill a slot a second time before its first bytes are sent. So no rank waits for a slot that the
 * proxy looks at too late. */
#include "cuda/gpu/proxy.h"

#include "comm/base/clock.h"
#include "comm/core/edges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	POSTS = KO_HISTORY,
	GRACE_MS = 3000 /* for the lifelines to say why a link has failed, which the thread that
			   watches gives 1 s */
};

enum parcel_kind { SLOT = 1, POST };

struct head {
	uint32_t kind, slot;
	uint64_t len;
};

/* One end of the inner communicator's links. */
struct end {
	struct ko_link *link;
	int peer;
	struct head head;  /* of the parcel under way; kind 0: there is none */
	const char *bytes; /* what goes, or NULL */
	bool device;       /* slots are in a GPU's memory, which the host does not touch */
	bool begun, taken; /* the head was sent; the link takes the bytes where they are */
	char *to;          /* where the bytes arrive */
	size_t done;       /* bytes of it that went, or came */
	_Atomic int code;  /* what the link failed with; 0: it works. Whoever leaves reads it too */
	int64_t failed;    /* when, and why */
	char why[KO_TEXT];
};

struct ko_gpu_proxy {
	struct end out, in;
	int last;             /* slot that was sent */
	unsigned lent;        /* slots whose bytes the link still has, a bit for each */
	_Atomic int busy;     /* something is on its way to next */
	struct ko_desc came;  /* a post that comes */
	pthread_mutex_t lock; /* for what follows: posts that wait to be sent, and */
	struct ko_desc posts[POSTS], going;
	struct ko_desc theirs[POSTS]; /* what prev has said, by number modulo POSTS */
	unsigned put, taken;          /* <= put <= taken + POSTS */
};

int ko_gpu_proxy_open(struct ko_gpu_comm *g, struct ko_gpu_ring *ring)
{
	struct ko_gpu_proxy *r = calloc(1, sizeof(*r));

	if (!r)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for a proxy", g->comm->rank);
	pthread_mutex_init(&r->lock, NULL);
	r->out = (struct end){ .link = ring->over->to,
			       .peer = ring->out.peer,
			       .device = ring->out.device };
	r->in = (struct end){ .link = ring->over->from,
			      .peer = ring->in.peer,
			      .device = ring->in.device };
	ring->proxy = r;
	g->proxies = true;
	return 0;
}

void ko_gpu_proxy_close(struct ko_gpu_ring *ring)
{
	if (!ring->proxy)
		return;
	pthread_mutex_destroy(&ring->proxy->lock);
	free(ring->proxy);
	ring->proxy = NULL;
}

/* ---- Links that fail ------------------------------------------------------------------------- */

/* A link fails also if its other end has left. That is all right if nothing more is due. The
 * lifelines know more. */
static void note_failure(struct ko_gpu_comm *g, struct end *e, int code)
{
	ko_edge_fail(g->inner, e->link, e->peer, code);
	e->failed = ko_now_ms();
	snprintf(e->why, sizeof(e->why), "%s", kolo_last_error());
	e->code = code;
}

static bool is_overdue(const struct end *e, int waits_for)
{
	return e->code && waits_for == e->peer && ko_now_ms() - e->failed >= GRACE_MS;
}

void ko_gpu_proxy_check(struct ko_gpu_comm *g, const struct ko_gpu_ring *ring, int waits_for)
{
	const struct ko_gpu_proxy *r = ring->proxy;

	if (is_overdue(&r->out, waits_for))
		ko_comm_fail(g->comm, r->out.code, "%s", r->out.why);
	if (is_overdue(&r->in, waits_for))
		ko_comm_fail(g->comm, r->in.code, "%s", r->in.why);
}

/* ---- To next --------------------------------------------------------------------------------- */

static size_t slot_len(const struct ko_gpu_comm *g)
{
	return g->arena / KO_GPU_SLOTS;
}

static bool take_post(struct ko_gpu_proxy *r)
{
	bool taken;

	pthread_mutex_lock(&r->lock);
	taken = r->put != r->taken;
	if (taken)
		r->going = r->posts[r->taken++ % POSTS];
	pthread_mutex_unlock(&r->lock);
	return taken;
}

/* The next slot that the stream has filled; false: there is none. */
static bool take_slot(struct ko_gpu_comm *g, struct ko_gpu_ring *ring)
{
	struct ko_gpu_proxy *r = ring->proxy;

	for (int k = 1; ring->out.staged && k <= KO_GPU_SLOTS; k++) {
		int slot = (r->last + k) % KO_GPU_SLOTS;
		struct ko_gpu_flag *flag = &ring->out.flags[slot];

		if (r->lent & 1u << slot ||
		    atomic_load_explicit(&flag->value, memory_order_acquire) != KO_SLOT_FULL)
			continue;
		r->last = slot;
		r->out.bytes = ring->out.staged + (size_t)slot * slot_len(g);
		r->out.head =
			(struct head){ SLOT, (uint32_t)slot,
				       atomic_load_explicit(&flag->len, memory_order_relaxed) };
		return true;
	}
	return false;
}

/* Takes posts before slots, so that the other end compares before it gets elements. */
static bool take_parcel(struct ko_gpu_comm *g, struct ko_gpu_ring *ring)
{
	struct ko_gpu_proxy *r = ring->proxy;

	r->out.done = 0;
	r->out.begun = false;
	atomic_store(&r->busy, 1);
	if (take_post(r)) {
		r->out.head = (struct head){ POST, 0, sizeof(r->going) };
		r->out.bytes = (const char *)&r->going;
		return true;
	}
	return take_slot(g, ring);
}

static void empty_slot(struct ko_gpu_ring *ring, uint32_t slot)
{
	/* Pairs with the stream's wait: what is in the slot is not needed any more. */
	atomic_store_explicit(&ring->out.flags[slot].value, KO_SLOT_EMPTY, memory_order_release);
}

/* A rank that says goodbye has all that it waited for, even if its card's last message did not
 * arrive. */
static bool has_left(const struct ko_gpu_comm *g, int rank)
{
	const struct ko_life *life;

	for (int k = 0; (life = ko_lifelines_gone(g->inner->lifelines, &k)); k++)
		if (life->rank == rank)
			return life->state == KO_LIFE_LEFT;
	return false;
}

/* Marks slots whose bytes the link had as empty, all at once: the link reports only that it has
 * drained. Returns 1 if there were any, 0 if not, or what the link has failed with. */
static int take_slots_back(struct ko_gpu_comm *g, struct ko_gpu_ring *ring)
{
	struct ko_gpu_proxy *r = ring->proxy;
	int rc = 0;

	if (!r->lent)
		return 0;
	rc = r->out.code ? KO_EAGAIN : r->out.link->ops->drain(r->out.link);
	if (rc != 0 && !has_left(g, r->out.peer))
		return rc < 0 ? rc : 0;
	for (uint32_t k = 0; k < KO_GPU_SLOTS; k++)
		if (r->lent & 1u << k)
			empty_slot(ring, k);
	r->lent = 0;
	return 1;
}

static void end_parcel(struct ko_gpu_ring *ring)
{
	struct ko_gpu_proxy *r = ring->proxy;
	struct head *head = &r->out.head;

	if (head->kind == SLOT && r->out.taken)
		r->lent |= 1u << head->slot;
	else if (head->kind == SLOT)
		empty_slot(ring, head->slot);
	head->kind = 0;
}

/* Fills a slot of the link with the next part of the parcel, or lends the bytes where they are. The
 * head comes first: the receiver's offer is counted from there. */
static void fill(struct end *e, struct ko_slot *slot, size_t free_len)
{
	size_t head = e->begun ? 0 : sizeof(e->head),
	       n = ko_min_size(e->head.len - e->done, free_len - head);
	const char *from = e->bytes + e->done;

	if (!e->begun)
		e->taken = e->head.kind == SLOT &&
			   (e->device || ko_link_takes(e->link, e->bytes, e->head.len));
	if (!e->begun && e->taken)
		n = 0;
	slot->tag = 0;
	slot->len = head + n;
	slot->belongs = e->begun && e->taken ? 1 + e->done : 0;
	if (slot->belongs)
		slot->ptr = (void *)from;
	else
		memcpy((char *)slot->ptr + head, from, n);
	if (!e->begun)
		memcpy(slot->ptr, &e->head, head);
	e->done += n;
}

/* Returns 1 if something was moved or will be at the next try, 0 if not, or what the link has
 * failed with. */
static int send_some(struct ko_gpu_comm *g, struct ko_gpu_ring *ring)
{
	struct ko_gpu_proxy *r = ring->proxy;
	struct end *e = &r->out;
	struct ko_slot slot;
	int rc;

	if (!e->head.kind && !take_parcel(g, ring)) {
		rc = e->link->ops->drain(e->link);
		if (rc == 0 && !r->lent)
			atomic_store(&r->busy, 0);
		return rc < 0 ? rc : 0;
	}
	rc = e->link->ops->acquire(e->link, &slot);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	fill(e, &slot, ring->over_len);
	rc = e->link->ops->commit(e->link, &slot);
	if (!e->begun)
		ko_link_begin(e->link);
	e->begun = true;
	if (e->done == e->head.len)
		end_parcel(ring);
	return rc < 0 ? rc : 1;
}

bool ko_gpu_proxy_is_done(const struct ko_gpu_ring *ring)
{
	for (int k = 0; ring->out.staged && ring->out.flags && k < KO_GPU_SLOTS; k++)
		if (atomic_load_explicit(&ring->out.flags[k].value, memory_order_acquire) ==
		    KO_SLOT_FULL)
			return false;
	return !atomic_load(&ring->proxy->busy) || ring->proxy->out.code;
}

/* ---- From prev ------------------------------------------------------------------------------- */

/* Finds where a parcel goes. KO_EAGAIN while its slot is not empty. */
static int begin_parcel(struct ko_gpu_comm *g, struct ko_gpu_ring *ring, const struct ko_slot *slot)
{
	struct ko_gpu_proxy *r = ring->proxy;
	struct head head;

	if (slot->len < sizeof(head))
		return ko_fail(KOLO_ESYS,
			       "rank %d: a parcel of %zu bytes from rank %d, without a head",
			       g->comm->rank, slot->len, r->in.peer);
	memcpy(&head, slot->ptr, sizeof(head));
	if (head.kind == POST && head.len == sizeof(r->came)) {
		r->in.to = (char *)&r->came;
	} else if (head.kind == SLOT && ring->in.staged && head.slot < KO_GPU_SLOTS &&
		   head.len <= slot_len(g)) {
		/* Pairs with the stream's write, after it has read the slot. */
		if (atomic_load_explicit(&ring->in.flags[head.slot].value, memory_order_acquire) !=
		    KO_SLOT_EMPTY)
			return KO_EAGAIN;
		r->in.to = ring->in.staged + (size_t)head.slot * slot_len(g);
	} else {
		return ko_fail(
			KOLO_ESYS,
			"rank %d: rank %d sent a parcel that makes no sense (kind %u, slot %u)",
			g->comm->rank, r->in.peer, head.kind, head.slot);
	}
	r->in.head = head;
	r->in.done = 0;
	return 0;
}

static int compare(struct ko_gpu_comm *g, const struct ko_desc *mine, const struct ko_desc *theirs)
{
	struct kolo_comm *c = g->comm;
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT], my_op[KO_DESC_TEXT], their_op[KO_DESC_TEXT];

	if (mine->seq != theirs->seq || memcmp(mine, theirs, sizeof(*mine)) == 0)
		return 0;
	return ko_fail(KOLO_EMISMATCH, "ranks disagree: %s called %s, %s called %s",
		       ko_comm_name(c, c->rank, me), ko_desc_text(mine, my_op),
		       ko_comm_name(c, g->rings[KO_GPU_ALL].in.peer, them),
		       ko_desc_text(theirs, their_op));
}

/* Keeps what prev was called with, in case this rank has not been called yet, and compares.
 * Whichever rank comes later sees the other's post. */
static void compare_post(struct ko_gpu_comm *g, struct ko_gpu_ring *ring)
{
	struct ko_gpu_proxy *r = ring->proxy;
	struct kolo_comm *c = g->comm;
	struct ko_desc mine;

	pthread_mutex_lock(&r->lock);
	r->theirs[r->came.seq % POSTS] = r->came;
	pthread_mutex_unlock(&r->lock);
	if (ko_roster_desc(c->roster, c->rank, r->came.seq, &mine) &&
	    compare(g, &mine, &r->came) < 0)
		ko_comm_fail(c, KOLO_EMISMATCH, "%s", kolo_last_error());
}

int ko_gpu_proxy_compare(struct ko_gpu_comm *g, const struct ko_desc *mine)
{
	const struct ko_gpu_ring *ring = &g->rings[KO_GPU_ALL];
	struct ko_gpu_proxy *r = ring->proxy;
	struct ko_desc theirs;

	pthread_mutex_lock(&r->lock);
	theirs = r->theirs[mine->seq % POSTS];
	if (r->put - r->taken < POSTS && ring->out.staged) /* else it is not compared */
		r->posts[r->put++ % POSTS] = *mine;
	pthread_mutex_unlock(&r->lock);
	return compare(g, mine, &theirs);
}

/* Copies bytes that the link has in its own slot. Only the driver writes a GPU's memory. */
static int put(struct ko_gpu_comm *g, const struct end *e, const char *from, size_t n)
{
	char *to = e->to + e->done;
	int rc;

	if (from == to || n == 0)
		return 0;
	if (!e->device || e->head.kind == POST) {
		memcpy(to, from, n);
		return 0;
	}
	if ((rc = g->driver->enter(g->gpu)) == 0) {
		rc = g->driver->put(g->gpu, to, from, n);
		g->driver->leave(g->gpu);
	}
	return rc < 0 ? ko_gpu_error(g, rc, "putting what came into a slot") : 0;
}

/* Makes what a card has written visible to the stream. */
static int flush(struct ko_gpu_comm *g, const struct end *e)
{
	int rc;

	if (!e->device || e->head.kind == POST)
		return 0;
	if ((rc = g->driver->enter(g->gpu)) == 0) {
		rc = g->driver->flush(g->gpu);
		g->driver->leave(g->gpu);
	}
	return rc < 0 ? ko_gpu_error(g, rc, "flushing what a card wrote") : 0;
}

static void parcel_has_come(struct ko_gpu_comm *g, struct ko_gpu_ring *ring)
{
	struct end *e = &ring->proxy->in;

	if (e->head.kind == POST)
		compare_post(g, ring);
	else /* pairs with the stream's wait: the bytes are there */
		atomic_store_explicit(&ring->in.flags[e->head.slot].value, KO_SLOT_FULL,
				      memory_order_release);
	e->head.kind = 0;
}

/* After the head was released: offers the card the place for the rest of the parcel. */
static void offer(struct end *e)
{
	struct ko_link *link = e->link;

	ko_link_begin(link);
	if (e->head.kind == SLOT && !link->anywhere && ko_link_takes(link, e->to, e->head.len))
		link->ops->rma->offer(link, e->to, e->head.len);
}

/* As send_some. */
static int receive_some(struct ko_gpu_comm *g, struct ko_gpu_ring *ring)
{
	struct end *e = &ring->proxy->in;
	size_t head = e->head.kind ? 0 : sizeof(e->head), n;
	struct ko_slot slot;
	int rc;

	n = head ? 0 : ko_min_size(e->head.len - e->done, ring->over_len);
	rc = e->link->ops->peek(e->link, head ? NULL : e->to + e->done, n, &slot);
	if (rc == 0 && head)
		rc = begin_parcel(g, ring, &slot);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	n = ko_min_size(slot.len - head, e->head.len - e->done);
	rc = put(g, e, (const char *)slot.ptr + head, n);
	e->done += n;
	if (rc == 0 && e->done == e->head.len)
		rc = flush(g, e);
	if (rc < 0) /* the stream would wait for ever */
		return ko_comm_fail(g->comm, rc, "%s", kolo_last_error());
	rc = e->link->ops->release(e->link);
	if (e->done == e->head.len)
		parcel_has_come(g, ring);
	else if (head)
		offer(e);
	return rc < 0 ? rc : 1;
}

int ko_gpu_proxy_move(struct ko_gpu_comm *g, struct ko_gpu_ring *ring)
{
	struct ko_gpu_proxy *r = ring->proxy;
	int sent = take_slots_back(g, ring), came;

	if (sent == 0 && !r->out.code)
		sent = send_some(g, ring);
	if (sent < 0)
		note_failure(g, &r->out, sent);
	came = r->in.code ? 0 : receive_some(g, ring);
	if (came < 0)
		note_failure(g, &r->in, came);
	if (came == 0) /* a message to prev may need a call; the next try reports a failure */
		r->in.link->ops->progress(r->in.link);
	return sent > 0 || came > 0;
}
