/* The ring's moves, recorded (ko_gpu_go_round): waits for slots, kernels, and marks of slots that
 * are full or empty. */
#include "cuda/stream/moves.h"

#include "comm/base/check.h"
#include "comm/coll/grid.h"
#include "comm/coll/rounds.h"
#include "comm/rings/rails.h"
#include "comm/rings/step.h"

#include <stddef.h>

/* Moves get a run. This is the tape that it lies in. */
static struct ko_moves_tape *tape_of(struct ko_run *run)
{
	return (struct ko_moves_tape *)(void *)((char *)run -
						offsetof(struct ko_moves_tape, tape.run));
}

/* ---- Slots ----------------------------------------------------------------------------------- */

static size_t flag_of_slot(int slot)
{
	return (size_t)slot * sizeof(struct ko_gpu_flag);
}

static int in_slot(const struct ko_moves_tape *m, const struct ko_moves_ring *e)
{
	return (int)(e->in % (uint64_t)m->nslots);
}

static int out_slot(const struct ko_moves_tape *m, const struct ko_moves_ring *e)
{
	return (int)(e->out % (uint64_t)m->nslots);
}

/* The stream waits until prev's slot is full. */
static int wait_data(struct ko_moves_tape *m, struct ko_moves_ring *e)
{
	struct ko_gpu_pair *pair = e->ring->in.pair;

	if (!e->in_flags)
		return ko_tape_await(&m->tape, e->ring->in.peer, &pair->filled,
				     e->in_before + e->in + 1, pair->full[in_slot(m, e)]);
	ko_tape_flag(&m->tape, KO_FLAG_SET, KO_SLOT_FAILED, e->ring->in.gpu_flags,
		     flag_of_slot(in_slot(m, e)));
	return 0;
}

/* The stream waits until next has emptied the slot that this rank has filled as its number
 * `filled`, counted from 1. */
static int wait_emptied(struct ko_moves_tape *m, struct ko_moves_ring *e, uint64_t filled)
{
	struct ko_gpu_pair *pair = e->ring->out.pair;
	int slot = (int)((filled - 1) % (uint64_t)m->nslots);

	if (!e->out_flags)
		return ko_tape_await(&m->tape, e->ring->out.peer, &pair->emptied,
				     e->out_before + filled, pair->empty[slot]);
	ko_tape_flag(&m->tape, KO_FLAG_CLEARED, KO_SLOT_TAKEN, e->ring->out.gpu_flags,
		     flag_of_slot(slot));
	return 0;
}

/* Marks this rank's next slot to next as full, with `len` bytes. */
static int say_full(struct ko_moves_tape *m, struct ko_moves_ring *e, size_t len)
{
	struct ko_gpu_pair *pair = e->ring->out.pair;
	int slot = out_slot(m, e);

	e->out++;
	if (!e->out_flags)
		return ko_tape_mark(&m->tape, &pair->filled, pair->full[slot]);
	if (e->ring->out.staged)
		ko_tape_flag(&m->tape, KO_FLAG_WRITE, (uint32_t)len, e->ring->out.gpu_flags,
			     flag_of_slot(slot) + offsetof(struct ko_gpu_flag, len));
	ko_tape_flag(&m->tape, KO_FLAG_WRITE, KO_SLOT_FULL, e->ring->out.gpu_flags,
		     flag_of_slot(slot));
	return 0;
}

static int say_empty(struct ko_moves_tape *m, struct ko_moves_ring *e)
{
	struct ko_gpu_pair *pair = e->ring->in.pair;
	int slot = in_slot(m, e);

	e->in++;
	if (!e->in_flags)
		return ko_tape_mark(&m->tape, &pair->emptied, pair->empty[slot]);
	ko_tape_flag(&m->tape, KO_FLAG_WRITE, KO_SLOT_EMPTY, e->ring->in.gpu_flags,
		     flag_of_slot(slot));
	return 0;
}

/* ---- Moves ----------------------------------------------------------------------------------- */

/* What the stream is about to wait for. */
static uint32_t stage_of(const struct ko_moves_tape *m, const struct ko_moves_ring *e,
			 bool receives, bool sends)
{
	uint32_t stage = (uint32_t)e->ring->kind * KO_STAGE_RING;

	if (receives && e->in_flags)
		stage |= KO_STAGE_FULL | (uint32_t)in_slot(m, e) << 8;
	if (sends && e->out_flags)
		stage |= KO_STAGE_EMPTY | (uint32_t)out_slot(m, e) << 16;
	return stage;
}

static int begin_move(struct ko_moves_tape *m, struct ko_moves_ring *e, bool receives, bool sends)
{
	int rc = ko_tape_pace(&m->tape);

	/* The first slots are empty: each operation ends so. */
	sends = sends && e->out >= (uint64_t)m->nslots;
	ko_tape_stage(&m->tape, stage_of(m, e, receives, sends));
	if (rc == 0 && receives)
		rc = wait_data(m, e);
	if (rc == 0 && sends)
		rc = wait_emptied(m, e, e->out + 1 - (uint64_t)m->nslots);
	m->tape.moves++;
	return rc < 0 ? rc : ko_tape_flush(&m->tape);
}

/* A slot's elements begin as far after a multiple of 16 bytes as they do in an aligned vector,
 * where they are `place` bytes after the beginning. Kernels load 16 bytes at once if all places
 * have the same such distance. Both ends know `place`. Staged slots begin without a distance. */
static void *slot_at(const struct ko_moves_tape *m, const struct ko_gpu_link *link, int slot,
		     size_t place)
{
	return (char *)link->memory.at + (size_t)slot * m->stride +
	       (link->staged ? 0 : place % KO_GPU_VECTOR);
}

/* A move: receives, sends, or both. Its elements begin `place` bytes into the vector. `own` is
 * combined with what is received. dst gets the result too. Both may be NULL. */
struct move {
	const void *own;
	void *dst;
	bool receives, sends;
	size_t place, n;
};

static int move(struct ko_moves_tape *m, struct ko_moves_ring *e, struct ko_gpu_job job,
		const struct move *v)
{
	struct ko_gpu_comm *g = m->tape.g;
	size_t len = v->n * m->tape.run.size;
	int rc = begin_move(m, e, v->receives, v->sends);

	if (v->receives)
		job.ins[job.nins++] = slot_at(m, &e->ring->in, in_slot(m, e), v->place);
	if (v->own)
		job.ins[job.nins++] = v->own;
	if (v->dst)
		job.outs[job.nouts++] = v->dst;
	if (v->sends)
		job.outs[job.nouts++] = slot_at(m, &e->ring->out, out_slot(m, e), v->place);
	if (rc == 0)
		rc = ko_tape_compute(&m->tape, job, v->n);
	if (rc == 0 && v->sends)
		rc = say_full(m, e, len);
	if (rc == 0 && v->receives)
		rc = say_empty(m, e);
	g->attached.sent += v->sends ? len : 0;
	g->attached.received += v->receives ? len : 0;
	return rc;
}

/* Bytes from the beginning of the caller's vector. NULL has no elements, so its place does not
 * matter. */
static size_t place_in(const char *vector, const void *p)
{
	return p ? (size_t)((const char *)p - vector) : 0;
}

static int record_send(struct ko_run *run, ko_fill_fn *fn, const void *src, const void *to,
		       size_t n)
{
	struct ko_moves_tape *m = tape_of(run);
	size_t place = to ? place_in(m->dst, to) : place_in(m->src, src);

	return move(m, &m->rings[KO_GPU_ALL],
		    (struct ko_gpu_job){ .scales = fn != run->copy, .how = run->red.how },
		    &(struct move){ .own = src, .sends = true, .place = place, .n = n });
}

/* Combines the received elements with this rank's own. dst gets the finished result if it is not
 * NULL. With `sends` the result also goes to next. */
static int add(struct ko_run *run, const void *own, void *dst, bool sends, size_t n)
{
	struct ko_moves_tape *m = tape_of(run);
	struct ko_gpu_job job = { .how = run->red.how, .divides = dst && run->red.divides };

	return move(m, &m->rings[KO_GPU_ALL], job,
		    &(struct move){ own, dst, true, sends, place_in(m->src, own), n });
}

static int record_add_and_pass(struct ko_run *run, const void *own, size_t n)
{
	return add(run, own, NULL, true, n);
}

static int record_add_and_keep(struct ko_run *run, const void *own, void *dst, size_t n)
{
	return add(run, own, dst, false, n);
}

static int record_add_keep_and_pass(struct ko_run *run, const void *own, void *dst, size_t n)
{
	return add(run, own, dst, true, n);
}

/* Keeps the received elements as they are. */
static int keep(struct ko_run *run, void *dst, bool sends, size_t n)
{
	struct ko_moves_tape *m = tape_of(run);

	return move(m, &m->rings[KO_GPU_ALL], (struct ko_gpu_job){ 0 },
		    &(struct move){ NULL, dst, true, sends, place_in(m->dst, dst), n });
}

static int record_keep_and_pass(struct ko_run *run, void *dst, size_t n)
{
	return keep(run, dst, true, n);
}

static int record_keep(struct ko_run *run, void *dst, size_t n)
{
	return keep(run, dst, false, n);
}

static int record_keep_own(struct ko_run *run, void *dst, const void *src, size_t n)
{
	struct ko_gpu_job job = { .nins = 1, .ins = { src }, .nouts = 1, .outs = { dst } };

	return dst == src ? 0 : ko_tape_compute(&tape_of(run)->tape, job, n);
}

/* A step of the order "grid", of one piece. */
static int record_step(struct ko_run *run, const struct ko_edges *along, const struct ko_step *s)
{
	struct ko_moves_tape *m = tape_of(run);
	const struct ko_part *p = s->parts;
	int ring = along == &run->comm->rails->rail ? KO_GPU_RAIL : KO_GPU_GROUP;
	bool divides = s->finish || (!s->in && s->fill == run->red.finish);
	struct ko_gpu_job job = { .divides = divides && run->red.divides };
	struct move v = { .own = !s->in || s->combine ? p->own : NULL,
			  .dst = s->in || !s->out ? p->keep : NULL,
			  .receives = s->in,
			  .sends = s->out,
			  .place = p->first * run->size,
			  .n = p->n };

	ko_check(s->nparts == 1, "a recorded step has one piece");
	job.how = run->red.how;
	if (!s->in)
		job.scales = run->red.scales && s->fill == run->red.first;
	else if (s->combine)
		job.how = s->combine == run->red.combine ? run->red.how : m->how_sums;
	if (s->in || s->out)
		return move(m, &m->rings[ring], job, &v);
	job.ins[job.nins++] = v.own; /* a ring of one rank */
	job.outs[job.nouts++] = v.dst;
	return ko_tape_compute(&m->tape, job, v.n);
}

static const struct ko_moves recorded_moves = {
	.send = record_send,
	.add_and_pass = record_add_and_pass,
	.add_and_keep = record_add_and_keep,
	.add_keep_and_pass = record_add_keep_and_pass,
	.keep_and_pass = record_keep_and_pass,
	.keep = record_keep,
	.keep_own = record_keep_own,
	.step = record_step,
};

/* ---- All of it ------------------------------------------------------------------------------- */

static size_t whole(size_t len, size_t unit)
{
	return (len + unit - 1) / unit * unit;
}

/* If data goes all the way round, a slot has a whole block, because each rank always works on
 * another one. If data goes from rank to rank, a slot has a slice, so that all ranks are busy. */
size_t ko_gpu_slot_len(const struct ko_gpu_comm *g, enum ko_coll coll, size_t n, size_t nranks,
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

size_t ko_gpu_slot_payload(size_t slot_len)
{
	return slot_len - KO_GPU_VECTOR;
}

/* What a step moves of a block: an eighth of it, so that the stages of several rounds go side by
 * side, and at most what fits a slot and the room for sums. */
static struct ko_grid_room room_of(const struct ko_moves_tape *m)
{
	const struct ko_gpu_comm *g = m->tape.g;
	const struct kolo_comm *c = g->comm;
	const struct ko_run *run = &m->tape.run;
	struct ko_plan plan =
		ko_plan_in_blocks(&run->plan, (enum ko_coll)run->desc.coll, c->nranks);
	size_t sums = g->arena / KO_RAILS_DEPTH / (size_t)c->shape.ngroups;
	size_t most = ko_min_size(g->arena / KO_GPU_SLOTS, sums) / KO_GPU_ALIGN * KO_GPU_ALIGN;
	size_t len = whole(plan.block * run->size / KO_GPU_CHAIN, KO_GPU_ALIGN), piece;

	len = len < KO_GPU_LEAST ? KO_GPU_LEAST : len;
	piece = ko_min_size(len, most - KO_GPU_VECTOR);
	return (struct ko_grid_room){
		.sums = g->sums.at,
		.piece = piece,
		.stride = piece + KO_GPU_VECTOR,
		.align = KO_GPU_VECTOR,
	};
}

/* Sets the slots' length and number. */
static void choose_slots(struct ko_moves_tape *m, size_t slot_len)
{
	const struct ko_gpu_comm *g = m->tape.g;
	size_t stride = g->fixed ? g->arena / KO_GPU_SLOTS : slot_len, fit = g->arena / stride;

	m->stride = stride;
	m->nslots = fit < KO_GPU_SLOTS ? (int)fit : KO_GPU_SLOTS;
}

/* Sets flags or events, and the counts from before this operation. */
static struct ko_moves_ring *prepare(struct ko_moves_tape *m, const struct ko_gpu_ring *ring)
{
	struct ko_moves_ring *e = &m->rings[ring->kind];

	e->ring = ring;
	e->in_flags = m->tape.captured || !ring->in.pair;
	e->out_flags = m->tape.captured || !ring->out.pair;
	m->tape.watched = m->tape.watched || e->in_flags || e->out_flags;
	if (ring->in.pair)
		e->in_before = atomic_load_explicit(&ring->in.pair->emptied, memory_order_relaxed);
	if (ring->out.pair)
		e->out_before = atomic_load_explicit(&ring->out.pair->filled, memory_order_relaxed);
	return e;
}

/* Waits until next, or the proxy, has taken all: the next operation may use other slot lengths, and
 * a proxy does not take slots in order. */
static int finish(struct ko_moves_tape *m, struct ko_moves_ring *e)
{
	uint64_t all = e->out < (uint64_t)m->nslots ? e->out : (uint64_t)m->nslots;
	uint64_t waits = e->ring->out.staged ? all : all > 0;
	uint32_t ring = (uint32_t)e->ring->kind * KO_STAGE_RING;
	int rc = 0;

	for (uint64_t k = waits; rc == 0 && k-- > 0;) {
		uint64_t filled = e->out - k, slot = (filled - 1) % (uint64_t)m->nslots;

		ko_tape_stage(&m->tape,
			      e->out_flags ? ring | KO_STAGE_EMPTY | (uint32_t)slot << 16 : 0);
		rc = wait_emptied(m, e, filled);
	}
	return rc;
}

int ko_gpu_go_round(struct ko_moves_tape *m, size_t slot_len, const void *src, void *dst)
{
	struct ko_run *run = &m->tape.run;
	struct ko_moves_ring *e;
	int rc = 0;

	run->moves = &recorded_moves;
	m->src = src;
	m->dst = dst;
	choose_slots(m, slot_len);
	e = prepare(m, &m->tape.g->rings[KO_GPU_ALL]);
	for (size_t k = 0; rc == 0 && k < run->plan.rounds; k++)
		rc = ko_rounds[run->desc.coll](run, k, src, dst);
	return rc < 0 ? rc : finish(m, e);
}

int ko_gpu_go_along(struct ko_moves_tape *m, const void *src, void *dst)
{
	struct ko_gpu_comm *g = m->tape.g;
	struct ko_run *run = &m->tape.run;
	struct ko_grid_room room = room_of(m);
	int rc;

	run->moves = &recorded_moves;
	m->how_sums = ko_reducer_of_sums(run->red, (enum kolo_type)run->desc.type).how;
	choose_slots(m, whole(room.piece + KO_GPU_VECTOR, KO_GPU_ALIGN));
	for (int k = KO_GPU_GROUP; k <= KO_GPU_RAIL; k++)
		if (g->rings[k].over)
			prepare(m, &g->rings[k]);
	rc = ko_grid_in_order(run, &room, src, dst);
	for (int k = KO_GPU_GROUP; rc == 0 && k <= KO_GPU_RAIL; k++)
		if (g->rings[k].over)
			rc = finish(m, &m->rings[k]);
	return rc;
}

int ko_gpu_pass_on(struct ko_moves_tape *m, const struct ko_gpu_ring *ring, const void *src,
		   void *dst, size_t len, bool staged)
{
	struct ko_moves_ring *e;
	const struct move out = { .own = src, .sends = true, .n = len };
	const struct move in = { .dst = dst, .receives = true, .n = len };
	int rc = 0;

	choose_slots(m, whole(len, KO_GPU_ALIGN));
	e = prepare(m, ring);
	if (staged == !!ring->out.staged)
		rc = move(m, e, (struct ko_gpu_job){ 0 }, &out);
	if (rc == 0 && staged == !!ring->in.staged)
		rc = move(m, e, (struct ko_gpu_job){ 0 }, &in);
	return rc < 0 ? rc : finish(m, e);
}
