/* See record.h. A move waits for prev's slot to be full and for next's to be empty, does its work in one kernel, and says of both
 * slots what they are now. Nothing of it is looked at on the host, and every number in it is a constant, so that a graph can
 * hold it: slots are used from number 0 on in each operation, which ends when next has taken the last of them. */
#include "record.h"
#include "relay.h"

#include "../comm/collectives.h"
#include "../comm/rounds.h"
#include "../comm/watch.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>

enum { MAX_OPS = 20 }; /* more than those of a move and of an operation's end together */

struct record {
	struct ko_run run; /* first: moves are given this */
	struct ko_gpu_comm *g;
	void *stream;
	bool in_words, out_words; /* words say what the slots are, else events */
	int nslots;
	size_t stride;         /* bytes from slot to slot */
	const char *src, *dst; /* the caller's, which places are counted from */
	uint64_t in, out;      /* slots that came, and went, in this operation */
	uint64_t in_before;    /* slots of the pair from prev that were emptied before it, */
	uint64_t out_before;   /* and of the one to next that were filled */
	unsigned moves;
	bool paced; /* it goes no further ahead of the stream than a launch queue is long */
	struct ko_word_op ops[MAX_OPS]; /* nops of them are not on the stream yet */
	int nops;
};

static struct record *record_of(struct ko_run *run)
{
	return (struct record *)run;
}

/* ---- Words and events ----------------------------------------------------------------------------------- */

static int flush(struct record *r)
{
	int n = r->nops, rc;

	r->nops = 0;
	if (n == 0)
		return 0;
	rc = r->g->driver->words(r->g->gpu, r->stream, r->ops, n);
	return rc < 0 ? ko_gpu_error(r->g, rc, "recording a wait or a write") : 0;
}

static void add_op(struct record *r, enum ko_word_kind kind, uint32_t value, char *words, size_t offset)
{
	r->ops[r->nops++] = (struct ko_word_op){ kind, value, words + offset };
}

static size_t word_of_slot(int slot)
{
	return offsetof(struct ko_gpu_words, slot) + (size_t)slot * sizeof(struct ko_gpu_word);
}

static void set_stage(struct record *r, uint32_t stage)
{
	add_op(r, KO_WORD_WRITE, stage, r->g->in.gpu_words, offsetof(struct ko_gpu_words, stage));
	add_op(r, KO_WORD_WRITE, 0, r->g->in.gpu_words, offsetof(struct ko_gpu_words, looked));
}

/* Until the neighbour, a thread of this process, has recorded so much. */
struct recorded {
	_Atomic uint64_t *count;
	uint64_t least;
};

static int try_recorded(void *what)
{
	const struct recorded *r = what;

	/* Pairs with the release in say_recorded: the event was recorded. */
	return atomic_load_explicit(r->count, memory_order_acquire) >= r->least ? 0 : KO_EAGAIN;
}

static int await_event(struct record *r, int peer, _Atomic uint64_t *count, uint64_t least, void *event)
{
	struct recorded what = { count, least };
	int rc = flush(r); /* others may wait for what is not on the stream yet */

	if (rc == 0)
		rc = ko_wait(&r->run, peer, "the GPU's stream", KO_TRACE_DATA, try_recorded, &what);
	if (rc == 0 && (rc = r->g->driver->event_await(r->g->gpu, r->stream, event)) < 0)
		rc = ko_gpu_error(r->g, rc, "waiting for an event");
	return rc;
}

static int say_recorded(struct record *r, _Atomic uint64_t *count, void *event)
{
	int rc = r->g->driver->event_record(r->g->gpu, event, r->stream);

	if (rc < 0)
		return ko_gpu_error(r->g, rc, "recording an event");
	/* This rank alone writes it. Pairs with the acquire in try_recorded. */
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
			      memory_order_release);
	ko_roster_ring(r->run.comm->roster, r->run.comm->rank, r->run.comm->nranks);
	return 0;
}

/* ---- Slots ---------------------------------------------------------------------------------------------- */

static int in_slot(const struct record *r)
{
	return (int)(r->in % (uint64_t)r->nslots);
}

static int out_slot(const struct record *r)
{
	return (int)(r->out % (uint64_t)r->nslots);
}

/* The stream waits until prev's slot is full. */
static int wait_data(struct record *r)
{
	struct ko_gpu_pair *pair = r->g->in.pair;

	if (!r->in_words)
		return await_event(r, r->g->in.peer, &pair->filled, r->in_before + r->in + 1,
				   pair->full[in_slot(r)]);
	add_op(r, KO_WORD_SET, KO_SLOT_FAILED, r->g->in.gpu_words, word_of_slot(in_slot(r)));
	return 0;
}

/* The stream waits until next has emptied the slot that this rank has filled as its number `filled`, from 1. */
static int wait_emptied(struct record *r, uint64_t filled)
{
	struct ko_gpu_pair *pair = r->g->out.pair;
	int slot = (int)((filled - 1) % (uint64_t)r->nslots);

	if (!r->out_words)
		return await_event(r, r->g->out.peer, &pair->emptied, r->out_before + filled,
				   pair->empty[slot]);
	add_op(r, KO_WORD_CLEARED, KO_SLOT_TAKEN, r->g->out.gpu_words, word_of_slot(slot));
	return 0;
}

/* With `len` bytes. */
static int say_full(struct record *r, size_t len)
{
	struct ko_gpu_pair *pair = r->g->out.pair;
	int slot = out_slot(r);

	r->out++;
	if (!r->out_words)
		return say_recorded(r, &pair->filled, pair->full[slot]);
	if (r->g->out.room)
		add_op(r, KO_WORD_WRITE, (uint32_t)len, r->g->out.gpu_words,
		       word_of_slot(slot) + offsetof(struct ko_gpu_word, len));
	add_op(r, KO_WORD_WRITE, KO_SLOT_FULL, r->g->out.gpu_words, word_of_slot(slot));
	return 0;
}

static int say_empty(struct record *r)
{
	struct ko_gpu_pair *pair = r->g->in.pair;
	int slot = in_slot(r);

	r->in++;
	if (!r->in_words)
		return say_recorded(r, &pair->emptied, pair->empty[slot]);
	add_op(r, KO_WORD_WRITE, KO_SLOT_EMPTY, r->g->in.gpu_words, word_of_slot(slot));
	return 0;
}

/* ---- Moves ---------------------------------------------------------------------------------------------- */

/* What the stream is about to wait for, for who watches. */
static uint32_t stage_of(const struct record *r, bool data, bool room)
{
	uint32_t stage = KO_STAGE_ACTIVE + (uint32_t)(r->moves & 255) * KO_STAGE_MOVE;

	if (data && r->in_words)
		stage |= KO_STAGE_DATA | (uint32_t)in_slot(r) << 8;
	if (room && r->out_words)
		stage |= KO_STAGE_ROOM | (uint32_t)out_slot(r) << 16;
	return stage;
}

/* So that the driver's queue of what it has to launch does not fill up, and block whoever would have to launch what empties
 * it, the recording waits for the stream. Not longer than the communicator works: then the stream goes on. */
static int keep_pace(struct record *r)
{
	const struct ko_driver *d = r->g->driver;
	unsigned k = r->g->moves / KO_GPU_PACE;
	int rc;

	if (!r->paced || r->g->moves++ % KO_GPU_PACE)
		return 0;
	rc = flush(r);
	if (rc == 0 && (rc = d->event_record(r->g->gpu, r->g->pace[k % 2], r->stream)) < 0)
		rc = ko_gpu_error(r->g, rc, "recording an event");
	while (rc == 0 && k > 0 && d->event_poll(r->g->gpu, r->g->pace[(k - 1) % 2]) == KO_EAGAIN) {
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
		rc = ko_roster_cause(r->run.comm->roster);
	}
	return rc;
}

static int begin_move(struct record *r, bool data, bool room)
{
	int rc = keep_pace(r);

	/* The first slots are empty: each operation ends so. */
	room = room && r->out >= (uint64_t)r->nslots;
	if (r->in_words || r->out_words)
		set_stage(r, stage_of(r, data, room));
	if (rc == 0 && data)
		rc = wait_data(r);
	if (rc == 0 && room)
		rc = wait_emptied(r, r->out + 1 - (uint64_t)r->nslots);
	r->moves++;
	return rc < 0 ? rc : flush(r);
}

static int compute(struct record *r, struct ko_gpu_job job, size_t n)
{
	int rc;

	job.n = n;
	job.type = (enum kolo_type)r->run.desc.type;
	job.s = r->run.red.s;
	if (n == 0)
		return 0;
	rc = r->g->driver->compute(r->g->gpu, r->stream, &job);
	return rc < 0 ? ko_gpu_error(r->g, rc, "launching a kernel") : 0;
}

/* A slot's elements begin `place` bytes of the vector behind a multiple of 16, as they do in a vector that is aligned: kernels
 * load and store 16 bytes at once where all they work on lies alike. Both ends find the same. A relay's slots begin at once. */
static void *slot_at(const struct record *r, const struct ko_gpu_link *link, int slot, size_t place)
{
	return (char *)link->memory.at + (size_t)slot * r->stride + (link->room ? 0 : place % KO_GPU_VECTOR);
}

/* One move: what comes in, goes out, or both; of elements that begin `place` bytes into the vector. */
static int move(struct record *r, struct ko_gpu_job job, bool data, bool room, size_t place, size_t n)
{
	size_t len = n * r->run.size;
	int rc = begin_move(r, data, room);

	if (data)
		job.in = slot_at(r, &r->g->in, in_slot(r), place);
	if (room)
		*(job.out ? &job.also : &job.out) = slot_at(r, &r->g->out, out_slot(r), place);
	if (rc == 0)
		rc = compute(r, job, n);
	if (rc == 0 && room)
		rc = say_full(r, len);
	if (rc == 0 && data)
		rc = say_empty(r);
	r->g->attached.sent += room ? len : 0;
	r->g->attached.received += data ? len : 0;
	return rc;
}

/* Bytes from where the caller's vector begins; NULL, which has no elements, may be anywhere. */
static size_t place_in(const char *vector, const void *p)
{
	return p ? (size_t)((const char *)p - vector) : 0;
}

static int record_send(struct ko_run *run, ko_fill_fn *fn, const void *src, const void *to, size_t n)
{
	struct record *r = record_of(run);
	size_t place = to ? place_in(r->dst, to) : place_in(r->src, src);

	return move(r, (struct ko_gpu_job){ .own = src, .scales = fn != run->copy }, false, true, place, n);
}

/* What comes in and the own elements, combined. */
static struct ko_gpu_job addition(const struct record *r, const void *own)
{
	return (struct ko_gpu_job){ .own = own, .how = r->run.red.how };
}

static int record_add_and_pass(struct ko_run *run, const void *own, size_t n)
{
	struct record *r = record_of(run);

	return move(r, addition(r, own), true, true, place_in(r->src, own), n);
}

/* And finished, in dst; on to next, too, with `room`. */
static int add_and_keep(struct record *r, const void *own, void *dst, bool room, size_t n)
{
	struct ko_gpu_job job = addition(r, own);

	job.out = dst;
	job.divides = r->run.red.divides;
	return move(r, job, true, room, place_in(r->src, own), n);
}

static int record_add_and_keep(struct ko_run *run, const void *own, void *dst, size_t n)
{
	return add_and_keep(record_of(run), own, dst, false, n);
}

static int record_add_keep_and_pass(struct ko_run *run, const void *own, void *dst, size_t n)
{
	return add_and_keep(record_of(run), own, dst, true, n);
}

static int record_keep_and_pass(struct ko_run *run, void *dst, size_t n)
{
	struct record *r = record_of(run);

	return move(r, (struct ko_gpu_job){ .out = dst }, true, true, place_in(r->dst, dst), n);
}

static int record_keep(struct ko_run *run, void *dst, size_t n)
{
	struct record *r = record_of(run);

	return move(r, (struct ko_gpu_job){ .out = dst }, true, false, place_in(r->dst, dst), n);
}

static int record_keep_own(struct ko_run *run, void *dst, const void *src, size_t n)
{
	return dst == src ? 0 : compute(record_of(run), (struct ko_gpu_job){ .out = dst, .own = src }, n);
}

static const struct ko_moves recorded_moves = {
	.send = record_send,
	.add_and_pass = record_add_and_pass,
	.add_and_keep = record_add_and_keep,
	.add_keep_and_pass = record_add_keep_and_pass,
	.keep_and_pass = record_keep_and_pass,
	.keep = record_keep,
	.keep_own = record_keep_own,
};

/* ---- An operation --------------------------------------------------------------------------------------- */

static size_t whole(size_t len, size_t unit)
{
	return (len + unit - 1) / unit * unit;
}

/* How long slots are, KO_GPU_VECTOR bytes more than their elements have: of what goes all the way round, blocks as they are, since
 * each rank is busy with another one all the time; of what goes from rank to rank slices, so that all are busy. The same on
 * all ranks. */
static size_t choose_slot(const struct ko_gpu_comm *g, enum ko_coll coll, size_t n, size_t nranks,
			  size_t size)
{
	size_t most = g->fixed ? g->arena / KO_GPU_SLOTS : g->arena / 2, len;

	if (coll == KO_BROADCAST || coll == KO_REDUCE) {
		most = g->arena / KO_GPU_SLOTS;
		len = n * size / KO_GPU_CHAIN;
		len = len < KO_GPU_LEAST ? KO_GPU_LEAST : len;
	} else {
		len = (coll == KO_ALL_REDUCE ? (n + nranks - 1) / nranks : n) * size;
	}
	len = whole(len + KO_GPU_VECTOR, KO_GPU_ALIGN);
	return len < most ? len : most;
}

static size_t largest_count(const struct ko_call *call)
{
	size_t most = 0;

	for (int r = 0; r < call->comm->nranks; r++)
		most = call->counts[r] > most ? call->counts[r] : most;
	return most;
}

/* Slots, words or events, and what came before. `captured`: into a graph, whose waits are words always. */
static void prepare(struct record *r, struct ko_gpu_comm *g, void *stream, size_t slot_len, bool captured)
{
	size_t stride = g->fixed ? g->arena / KO_GPU_SLOTS : slot_len, fit = g->arena / stride;

	r->g = g;
	r->stream = stream;
	r->stride = stride;
	r->nslots = fit < KO_GPU_SLOTS ? (int)fit : KO_GPU_SLOTS;
	r->in_words = captured || !g->in.pair;
	r->out_words = captured || !g->out.pair;
	r->paced = !captured;
	if (g->in.pair)
		r->in_before = atomic_load_explicit(&g->in.pair->emptied, memory_order_relaxed);
	if (g->out.pair)
		r->out_before = atomic_load_explicit(&g->out.pair->filled, memory_order_relaxed);
}

/* The communicator's last operation comes first, whatever stream that was on. What was captured is ordered where its graph is
 * launched, which is the caller's. */
static int follow_last(struct ko_gpu_comm *g, void *stream, uint64_t capture)
{
	const struct ko_gpu_last *last = capture ? &g->captured : &g->last;
	int rc = 0;

	if (last->recorded && last->capture == capture)
		rc = g->driver->event_await(g->gpu, stream, last->event);
	return rc < 0 ? ko_gpu_error(g, rc, "waiting for the operation before on its stream") : 0;
}

static int mark_last(struct ko_gpu_comm *g, void *stream, uint64_t capture)
{
	struct ko_gpu_last *last = capture ? &g->captured : &g->last;
	int rc = g->driver->event_record(g->gpu, last->event, stream);

	if (rc < 0)
		return ko_gpu_error(g, rc, "recording an event");
	last->capture = capture;
	last->recorded = true;
	return 0;
}

/* The operation is over when next, or the relay, has taken all: the next one's slots may lie otherwise, and a relay does not
 * take them in their order. */
static int finish(struct record *r)
{
	uint32_t stage = KO_STAGE_ACTIVE + (uint32_t)(r->moves & 255) * KO_STAGE_MOVE;
	uint64_t all = r->out < (uint64_t)r->nslots ? r->out : (uint64_t)r->nslots;
	uint64_t waits = r->g->out.room ? all : all > 0;
	int rc = 0;

	for (uint64_t k = waits; rc == 0 && k-- > 0;) {
		uint64_t filled = r->out - k;

		if (r->out_words)
			set_stage(r, stage | KO_STAGE_ROOM |
					     (uint32_t)((filled - 1) % (uint64_t)r->nslots) << 16);
		else if (r->in_words)
			set_stage(r, stage);
		rc = wait_emptied(r, filled);
	}
	if (r->in_words || r->out_words)
		set_stage(r, 0);
	return rc < 0 ? rc : flush(r);
}

/* It is not recorded to its end: then the stream is at nothing any more when it has done what was, and `last` says when that
 * is, as far as the driver still does anything. Returns rc with its text. */
static int give_up(struct record *r, uint64_t capture, int rc)
{
	char why[KO_TEXT];

	snprintf(why, sizeof(why), "%s", kolo_last_error());
	r->nops = 0;
	if (r->in_words || r->out_words)
		set_stage(r, 0);
	flush(r);
	mark_last(r->g, r->stream, capture);
	return ko_fail(rc, "%s", why);
}

static int go_round(struct record *r, const void *src, void *dst)
{
	int rc = 0;

	r->src = src;
	r->dst = dst;
	for (size_t k = 0; rc == 0 && k < r->run.plan.rounds; k++)
		rc = ko_rounds[r->run.desc.coll](&r->run, k, src, dst);
	return rc < 0 ? rc : finish(r);
}

static int compute_alone(struct record *r, const void *src, void *dst)
{
	struct ko_gpu_job job = { .out = dst, .own = src };

	job.scales = ko_coll_reduces(r->run.desc.coll) && r->run.red.scales;
	return dst == src && !job.scales ? 0 : compute(r, job, r->run.plan.count);
}

/* With the communicator claimed, and this thread on the GPU. */
static int perform(struct record *r, const struct ko_call *call, uint64_t capture)
{
	struct kolo_comm *c = call->comm;
	struct ko_gpu_comm *g = r->g;
	int rc;

	if ((rc = follow_last(g, r->stream, capture)) < 0)
		return rc;
	if (c->nranks == 1) {
		rc = compute_alone(r, call->src, call->dst);
		return rc < 0 ? rc : mark_last(g, r->stream, capture);
	}
	/* Of two neighbours one sees what the other has posted. Pairs with itself there. */
	__sync_synchronize();
	if ((rc = ko_watch_compare(c, &r->run.desc, g->in.peer)) < 0 ||
	    (rc = ko_watch_compare(c, &r->run.desc, g->out.peer)) < 0 ||
	    (g->relay && (rc = ko_gpu_relay_compare(g, &r->run.desc)) < 0))
		return rc;
	pthread_mutex_lock(&g->lock);
	g->desc = r->run.desc;
	pthread_mutex_unlock(&g->lock);
	rc = go_round(r, call->src, call->dst);
	return rc < 0 ? give_up(r, capture, rc) : mark_last(g, r->stream, capture);
}

static void count(struct record *r)
{
	struct kolo_comm *c = r->run.comm;
	int root = r->run.desc.how & KO_UNEVEN ? -1 : r->run.desc.root;
	struct ko_model model =
		ko_plan_model(&r->run.plan, (enum ko_coll)r->run.desc.coll, c->rank, &c->ring, root);

	c->model.sent += model.sent * r->run.size;
	c->model.received += model.received * r->run.size;
}

/* On the GPU. */
static int record(struct ko_gpu_comm *g, void *stream, const struct ko_call *call,
		  const struct ko_reducer *red)
{
	struct kolo_comm *c = call->comm;
	size_t n = call->uneven ? largest_count(call) : call->n;
	size_t slot_len = choose_slot(g, call->coll, n, (size_t)c->nranks, kolo_type_size(call->type));
	struct record r = { 0 };
	uint64_t capture;
	int rc = g->driver->capture(g->gpu, stream, &capture);

	if (rc < 0)
		rc = ko_gpu_error(g, rc, "asking whether the stream is captured");
	if (rc < 0) /* the others wait for this rank; of a call that is wrong they don't hear */
		return rc == KOLO_EINVAL ? rc : ko_comm_fail(c, rc, "%s", kolo_last_error());
	if ((rc = ko_run_claim(c, call->coll)) < 0)
		return rc;
	ko_collective_plan(&r.run, call, red, slot_len - KO_GPU_VECTOR);
	r.run.moves = &recorded_moves;
	r.run.desc.how |= KO_RECORDED;
	prepare(&r, g, stream, slot_len, capture != 0);
	rc = ko_run_begin(&r.run);
	if (rc == 0)
		rc = perform(&r, call, capture);
	if (rc == 0 && c->nranks > 1)
		count(&r);
	if (rc == 0)
		c->ops[KO_RING]++;
	return ko_run_end(&r.run, rc);
}

int ko_gpu_record(struct ko_gpu_comm *g, void *stream, const struct ko_call *call,
		  const struct ko_reducer *red)
{
	int rc = g->driver->enter(g->gpu);

	if (rc < 0) /* the others wait for this rank */
		return ko_comm_fail(g->comm, ko_gpu_error(g, rc, "working on it"), "%s", kolo_last_error());
	rc = record(g, stream, call, red);
	g->driver->leave(g->gpu);
	return rc;
}

/* ---- Trying a path -------------------------------------------------------------------------------------- */

static int try_reached(void *what)
{
	const struct ko_gpu_comm *g = what;
	char them[KO_RANK_TEXT];
	int rc = g->driver->event_poll(g->gpu, g->last.event), k = 0;
	const struct ko_life *gone;

	if (rc != KO_EAGAIN)
		return rc < 0 ? ko_gpu_error(g, rc, "trying the path to another GPU") : 0;
	gone = ko_lifelines_gone(g->inner->lifelines, &k);
	return gone ? ko_fail(KOLO_EPEER, "%s died or left while the ranks joined their GPUs",
			      ko_comm_name(g->comm, gone->rank, them))
		    : KO_EAGAIN;
}

/* Moves of bytes, of the last operation of the inner communicator. */
static int pass(struct record *r, const void *src, void *dst, size_t len)
{
	struct ko_gpu_comm *g = r->g;
	int rc = 0;

	if (!g->out.room)
		rc = record_send(&r->run, r->run.copy, src, NULL, len);
	if (rc == 0 && !g->in.room)
		rc = record_keep(&r->run, dst, len);
	if (rc == 0)
		rc = finish(r);
	if (rc == 0)
		rc = mark_last(g, r->stream, 0);
	return rc < 0 ? rc : ko_wait(&r->run, g->in.peer, "the GPU's stream", KO_TRACE_DATA, try_reached, g);
}

int ko_gpu_pass(struct ko_gpu_comm *g, const void *src, void *dst, size_t len)
{
	struct kolo_comm *c = g->inner;
	struct record r = { .run = { .comm = c, .size = 1, .copy = ko_copy(KOLO_U8) } };
	void *stream;
	int rc = g->driver->stream_create(g->gpu, &stream);

	if (rc < 0)
		return ko_gpu_error(g, rc, "making a stream");
	ko_roster_desc(c->roster, c->rank, c->seq, &r.run.desc);
	r.src = src;
	r.dst = dst;
	prepare(&r, g, stream, whole(len, KO_GPU_ALIGN), false);
	rc = pass(&r, src, dst, len);
	if (rc < 0) { /* the others wait for this rank's part */
		rc = ko_comm_fail(c, give_up(&r, 0, rc), "%s", kolo_last_error());
		ko_gpu_let_go(g);
	}
	g->driver->stream_destroy(g->gpu, stream);
	g->last.recorded = false;
	g->attached.sent = g->attached.received = 0; /* nobody asked for it */
	return rc;
}
