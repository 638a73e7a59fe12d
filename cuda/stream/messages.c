/* Recording messages (ko_gpu_messages): lists them by lane, and advances all lanes in turns, a
 * chunk at a time. */
#include "cuda/stream/messages.h"
#include "cuda/gpu/lanes.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* What is left of a message. */
struct ko_gpu_message {
	struct ko_gpu_message *next; /* in its lane */
	enum kolo_type type;
	char *at;     /* the next chunk */
	size_t n;     /* elements */
	size_t chunk; /* elements that go at once */
};

/* What is recorded together. */
struct exchange {
	struct ko_tape *t;               /* of the caller's stream */
	struct ko_tape own[KO_GPU_WAYS]; /* of Kolo's streams */
	bool used[KO_GPU_WAYS];
	size_t nmessages;
	struct ko_gpu_lane *busy;     /* lanes with something left; NULL: none */
	struct ko_gpu_lane itself[2]; /* messages of this rank to itself: recvs, sends */
	int nlanes;                   /* with something in the beginning */
	bool moved, paced;            /* in the last turn */
	int rc;
};

/* ---- Listing --------------------------------------------------------------------------------- */

static struct ko_gpu_lane *lane_to(const struct ko_gpu_comm *g, int peer, bool sends)
{
	return sends ? &g->lanes.out[peer] : &g->lanes.in[peer];
}

/* Does it go by events of this process? */
static bool by_events(const struct ko_tape *t, const struct ko_gpu_lane *lane)
{
	return lane->crossing && !t->captured;
}

/* Elements that go at once: an eighth, so that both ends are busy, but no less than is worth it.
 * Both ends know it. */
static size_t chunk_of(const struct ko_gpu_lane *lane, const struct ko_message *m)
{
	size_t size = kolo_type_size(m->type), len = m->n * size / KO_GPU_CHAIN;

	len = len < KO_GPU_LEAST ? KO_GPU_LEAST : len / KO_GPU_ALIGN * KO_GPU_ALIGN;
	return (len < lane->stride ? len : lane->stride) / size;
}

static void append(struct exchange *x, struct ko_gpu_lane *lane, const struct ko_message *m)
{
	struct ko_gpu_message *new = &x->t->g->messages[x->nmessages++];

	*new = (struct ko_gpu_message){
		.type = m->type, .at = m->buffer, .n = m->n, .chunk = chunk_of(lane, m)
	};
	if (lane->first)
		lane->last->next = new;
	else
		lane->first = new;
	lane->last = new;
}

/* With another rank. */
static int list_message(struct exchange *x, const struct ko_message *m)
{
	struct ko_gpu_comm *g = x->t->g;
	struct ko_gpu_lane *lane = lane_to(g, m->peer, m->sends);
	struct ko_model *model = &g->comm->counters.model;
	size_t bytes = m->n * kolo_type_size(m->type);
	int bank = x->t->captured ? KO_GPU_CAPTURED : KO_GPU_RECORDED;
	int rc = ko_gpu_lane_post(g, lane, bank, m->n, m->type);

	if (rc < 0 || m->n == 0)
		return rc;
	*(m->sends ? &model->sent : &model->received) += bytes;
	if (!lane->first) {
		lane->busy = x->busy;
		x->busy = lane;
		x->nlanes++;
	}
	append(x, lane, m);
	return 0;
}

static void list(void *what, const struct ko_message *m)
{
	struct exchange *x = what;

	if (x->rc == 0 && m->peer != x->t->run.comm->rank)
		x->rc = list_message(x, m);
	else if (x->rc == 0)
		append(x, &x->itself[m->sends], m);
}

/* Room for all messages of the calls. */
static int make_room(struct ko_gpu_comm *g, const struct ko_call *const *calls, size_t count)
{
	size_t most = 0, nranks = (size_t)g->comm->nranks;
	struct ko_gpu_message *more;

	for (size_t k = 0; k < count; k++)
		most += ko_coll_is_message(calls[k]->coll) ? 1 : 2 * nranks;
	if (most <= g->room)
		return 0;
	more = realloc(g->messages, most * sizeof(*more));
	if (!more)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for %zu messages", g->comm->rank,
			       most);
	g->messages = more;
	g->room = most;
	return 0;
}

/* ---- To this rank itself --------------------------------------------------------------------- */

static int copy_own(struct exchange *x)
{
	const struct ko_gpu_message *from = x->itself[true].first, *to = x->itself[false].first;
	int rank = x->t->run.comm->rank, rc = 0;

	for (; rc == 0 && from && to; from = from->next, to = to->next) {
		if (from->n != to->n || from->type != to->type)
			return ko_fail(KOLO_EMISMATCH,
				       "rank %d sends n=%zu %s to itself, and waits for n=%zu %s",
				       rank, from->n, kolo_type_name(from->type), to->n,
				       kolo_type_name(to->type));
		rc = ko_tape_copy(x->t, to->type, to->at, from->at, to->n);
	}
	if (rc == 0 && (from || to))
		rc = ko_fail(
			KOLO_EMISMATCH,
			"rank %d: a %s itself on a stream without the other end: want both in one "
			"group",
			rank, from ? "send to" : "recv from");
	return rc;
}

/* ---- Streams --------------------------------------------------------------------------------- */

/* The tape of one of Kolo's own streams. */
static struct ko_tape *tape_of_way(struct exchange *x, int way, bool events)
{
	const struct ko_gpu_lanes *lanes = &x->t->g->lanes;
	struct ko_tape *t = &x->own[way];

	if (!x->used[way]) {
		*t = *x->t;
		t->stream = t->captured ? lanes->captured_ways[way] : lanes->ways[way];
		t->number = 1 + way;
		t->watched = !events;
	}
	x->used[way] = true;
	return t;
}

/* Gives each lane a stream. One that waits holds up what comes after it. So several lanes are on
 * different streams, as far as there are any, and lanes by flags never on one with lanes by
 * events. */
static int spread(struct exchange *x)
{
	int of_kind[2][2] = { { 0 } }, rc = 0;

	for (struct ko_gpu_lane *lane = x->busy; lane; lane = lane->busy) {
		bool events = by_events(x->t, lane);
		int turn = of_kind[events][lane->sends]++;
		int way = turn % (KO_GPU_WAYS_OF_KIND / 2) * 2 + lane->sends +
			  (events ? KO_GPU_WAYS_OF_KIND : 0);

		lane->tape = x->nlanes > 1 ? tape_of_way(x, way, events) : x->t;
		x->t->watched = x->t->watched || (!events && x->nlanes == 1);
	}
	for (int k = 0; rc == 0 && k < KO_GPU_WAYS; k++)
		if (x->used[k])
			rc = ko_tape_let_wait(x->t, x->own[k].stream, x->t->stream);
	return rc;
}

/* The caller's stream waits until Kolo's have done all. Also after a failure: their stages become
 * 0, and a captured stream must have all others back. */
static int join(struct exchange *x)
{
	int rc = 0;

	for (int k = 0; k < KO_GPU_WAYS; k++) {
		int failed = x->used[k] ? ko_tape_end(&x->own[k]) : 0;

		if (x->used[k] && failed == 0)
			failed = ko_tape_let_wait(x->t, x->t->stream, x->own[k].stream);
		rc = rc < 0 ? rc : failed;
	}
	return rc;
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

static int bank_of(const struct ko_gpu_lane *lane)
{
	return lane->tape->captured ? KO_GPU_CAPTURED : KO_GPU_RECORDED;
}

/* By events: has the other end recorded what this one must wait for? */
static bool is_recorded(const struct ko_gpu_lane *lane, int slot)
{
	const struct ko_gpu_crossing *c = lane->crossing;

	/* Both pair with the release in ko_tape_mark: the event was recorded. */
	if (lane->sends)
		return atomic_load_explicit(&c->emptied, memory_order_acquire) >= c->last[slot];
	return atomic_load_explicit(&c->filled, memory_order_acquire) >
	       atomic_load_explicit(&c->emptied, memory_order_relaxed);
}

/* The stream waits until the slot is the other end's no more. */
static int await_slot(struct ko_gpu_lane *lane, int bank, int slot, uint32_t what)
{
	struct ko_tape *t = lane->tape;
	struct ko_gpu_comm *g = t->g;
	const struct ko_gpu_crossing *c = lane->crossing;
	uint32_t stage = KO_GPU_LANE * KO_STAGE_RING | (bank ? KO_STAGE_FLAGS : 0) |
			 (lane->sends ? KO_STAGE_EMPTY : KO_STAGE_FULL);
	int rc = 0;

	if (by_events(t, lane)) {
		if ((rc = ko_tape_flush(t)) == 0 && (!lane->sends || c->last[slot]))
			rc = g->driver->event_await(g->gpu, t->stream,
						    lane->sends ? c->empty[slot] : c->full[slot]);
		return rc < 0 ? ko_gpu_error(g, rc, "waiting for an event") : 0;
	}
	if (lane->far && !lane->sends) /* the thread receives when it sees that */
		ko_tape_flag(t, KO_FLAG_WRITE, what, lane->gpu_board,
			     ko_gpu_lane_flag_at(bank, slot) + offsetof(struct ko_gpu_flag, len));
	ko_tape_stage(t, stage | (uint32_t)slot * KO_STAGE_LANE_SLOT |
				 (uint32_t)lane->peer % KO_STAGE_LANE_PEERS * KO_STAGE_LANE_PEER);
	ko_tape_flag(t, lane->sends ? KO_FLAG_CLEARED : KO_FLAG_SET,
		     lane->sends ? KO_SLOT_TAKEN : KO_SLOT_FAILED, lane->gpu_board,
		     ko_gpu_lane_flag_at(bank, slot));
	t->moves++;
	return ko_tape_flush(t);
}

/* The slot is the other end's from here on. */
static int give_slot(struct ko_gpu_lane *lane, int bank, int slot, uint32_t what)
{
	struct ko_gpu_crossing *c = lane->crossing;
	int rc;

	if (lane->far && lane->sends)
		ko_tape_flag(lane->tape, KO_FLAG_WRITE, what, lane->gpu_board,
			     ko_gpu_lane_flag_at(bank, slot) + offsetof(struct ko_gpu_flag, len));
	if (!by_events(lane->tape, lane)) {
		ko_tape_flag(lane->tape, KO_FLAG_WRITE, lane->sends ? KO_SLOT_FULL : KO_SLOT_EMPTY,
			     lane->gpu_board, ko_gpu_lane_flag_at(bank, slot));
		return 0;
	}
	if (!lane->sends)
		return ko_tape_mark(lane->tape, &c->emptied, c->empty[slot]);
	rc = ko_tape_mark(lane->tape, &c->filled, c->full[slot]);
	c->last[slot] = atomic_load_explicit(&c->filled, memory_order_relaxed);
	return rc;
}

/* Records a copy between a message and a slot of its lane. */
static int move(struct ko_gpu_lane *lane, const struct ko_gpu_message *m, size_t n)
{
	int bank = bank_of(lane), slot = lane->next[bank];
	char *at = lane->slots + (size_t)(bank * KO_GPU_LANE_SLOTS + slot) * lane->stride;
	uint32_t what = (uint32_t)n | (uint32_t)m->type << KO_GPU_LANE_TYPE;
	int rc = await_slot(lane, bank, slot, what);

	if (rc == 0)
		rc = ko_tape_copy(lane->tape, m->type, lane->sends ? at : m->at,
				  lane->sends ? m->at : at, n);
	return rc == 0 ? give_slot(lane, bank, slot, what) : rc;
}

/* The next chunk takes the next slot. In graphs each message begins with slot 0, because a graph
 * can't count. */
static void step_on(struct ko_gpu_lane *lane, bool over)
{
	int *next = &lane->next[bank_of(lane)];

	*next = lane->tape->captured && over ? 0 : (*next + 1) % KO_GPU_LANE_SLOTS;
}

/* Records the lane's next chunk. KO_EAGAIN: not yet. */
static int advance(struct exchange *x, struct ko_gpu_lane *lane)
{
	struct ko_gpu_message *m = lane->first;
	struct ko_tape *t = lane->tape;
	size_t n = m->n < m->chunk ? m->n : m->chunk, len = n * kolo_type_size(m->type);
	int rc;

	if (by_events(t, lane) && !is_recorded(lane, lane->next[KO_GPU_RECORDED]))
		return KO_EAGAIN;
	if ((rc = ko_tape_try_pace(t)) != 0) {
		x->paced = rc == KO_EAGAIN;
		return rc;
	}
	rc = move(lane, m, n);
	*(lane->sends ? &t->g->attached.sent : &t->g->attached.received) += len;
	m->at += len;
	m->n -= n;
	step_on(lane, m->n == 0);
	if (m->n == 0)
		lane->first = m->next;
	return rc;
}

/* What others wait for must not stay here while this thread waits. */
static int flush_all(struct exchange *x)
{
	int rc = ko_tape_flush(x->t);

	for (int k = 0; rc == 0 && k < KO_GPU_WAYS; k++)
		if (x->used[k])
			rc = ko_tape_flush(&x->own[k]);
	return rc;
}

/* Records a chunk of each lane that has one. KO_EAGAIN: all of them wait for others to record. */
static int take_turn(void *what)
{
	struct exchange *x = what;
	struct ko_gpu_lane **at = &x->busy, *lane;
	int rc;

	x->moved = x->paced = false;
	while ((lane = *at)) {
		rc = advance(x, lane);
		if (rc < 0)
			return rc;
		x->moved = x->moved || rc == 0;
		if (lane->first)
			at = &lane->busy;
		else
			*at = lane->busy;
	}
	if (x->moved)
		return 0;
	rc = flush_all(x);
	return rc < 0 || x->paced ? rc : KO_EAGAIN;
}

static int record_all(struct exchange *x)
{
	int rc = spread(x);

	while (rc == 0 && x->busy) {
		rc = ko_wait(&x->t->run, x->busy->peer, "the GPU's stream", KO_TRACE_DATA,
			     take_turn, x);
		if (rc == 0 && !x->moved) /* too far ahead of a stream */
			rc = ko_tape_nap(x->t);
	}
	return rc;
}

/* ---- All of it ------------------------------------------------------------------------------- */

bool ko_gpu_messages_need(const struct kolo_comm *c, int rank)
{
	const struct ko_gpu_comm *g = (const struct ko_gpu_comm *)c->attached;

	return g->lanes.out[rank].first || g->lanes.in[rank].first;
}

/* After a failure nothing is left in the lanes. */
static void drop(struct exchange *x)
{
	for (struct ko_gpu_lane *lane = x->busy; lane; lane = lane->busy)
		lane->first = NULL;
	x->busy = NULL;
	for (int k = 0; k < KO_GPU_WAYS; k++)
		x->own[k].nops = 0;
}

int ko_gpu_messages(struct ko_tape *t, const struct ko_call *const *calls, size_t count)
{
	struct exchange x = { .t = t };
	char why[KO_TEXT];
	int rc;

	x.rc = make_room(t->g, calls, count);
	for (size_t k = 0; x.rc == 0 && k < count; k++)
		ko_call_messages(calls[k], list, &x);
	rc = x.rc == 0 ? copy_own(&x) : x.rc;
	if (rc == 0)
		rc = record_all(&x);
	if (rc == 0)
		rc = join(&x);
	if (rc == 0)
		return 0;
	snprintf(why, sizeof(why), "%s", kolo_last_error());
	drop(&x);
	join(&x);
	return ko_fail(rc, "%s", why);
}
