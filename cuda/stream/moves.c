/* The ring's moves, recorded (ko_gpu_go_round): waits for slots, kernels, and marks of slots that
 * are full or empty. */
#include "cuda/stream/moves.h"

#include "comm/coll/rounds.h"

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
	return offsetof(struct ko_gpu_flags, slot) + (size_t)slot * sizeof(struct ko_gpu_flag);
}

static int in_slot(const struct ko_moves_tape *m)
{
	return (int)(m->in % (uint64_t)m->nslots);
}

static int out_slot(const struct ko_moves_tape *m)
{
	return (int)(m->out % (uint64_t)m->nslots);
}

/* The stream waits until prev's slot is full. */
static int wait_data(struct ko_moves_tape *m)
{
	struct ko_gpu_pair *pair = m->tape.g->in.pair;

	if (!m->in_flags)
		return ko_tape_await(&m->tape, m->tape.g->in.peer, &pair->filled,
				     m->in_before + m->in + 1, pair->full[in_slot(m)]);
	ko_tape_flag(&m->tape, KO_FLAG_SET, KO_SLOT_FAILED, m->tape.g->in.gpu_flags,
		     flag_of_slot(in_slot(m)));
	return 0;
}

/* The stream waits until next has emptied the slot that this rank has filled as its number
 * `filled`, counted from 1. */
static int wait_emptied(struct ko_moves_tape *m, uint64_t filled)
{
	struct ko_gpu_pair *pair = m->tape.g->out.pair;
	int slot = (int)((filled - 1) % (uint64_t)m->nslots);

	if (!m->out_flags)
		return ko_tape_await(&m->tape, m->tape.g->out.peer, &pair->emptied,
				     m->out_before + filled, pair->empty[slot]);
	ko_tape_flag(&m->tape, KO_FLAG_CLEARED, KO_SLOT_TAKEN, m->tape.g->out.gpu_flags,
		     flag_of_slot(slot));
	return 0;
}

/* Marks this rank's next slot to next as full, with `len` bytes. */
static int say_full(struct ko_moves_tape *m, size_t len)
{
	struct ko_gpu_pair *pair = m->tape.g->out.pair;
	int slot = out_slot(m);

	m->out++;
	if (!m->out_flags)
		return ko_tape_mark(&m->tape, &pair->filled, pair->full[slot]);
	if (m->tape.g->out.staged)
		ko_tape_flag(&m->tape, KO_FLAG_WRITE, (uint32_t)len, m->tape.g->out.gpu_flags,
			     flag_of_slot(slot) + offsetof(struct ko_gpu_flag, len));
	ko_tape_flag(&m->tape, KO_FLAG_WRITE, KO_SLOT_FULL, m->tape.g->out.gpu_flags,
		     flag_of_slot(slot));
	return 0;
}

static int say_empty(struct ko_moves_tape *m)
{
	struct ko_gpu_pair *pair = m->tape.g->in.pair;
	int slot = in_slot(m);

	m->in++;
	if (!m->in_flags)
		return ko_tape_mark(&m->tape, &pair->emptied, pair->empty[slot]);
	ko_tape_flag(&m->tape, KO_FLAG_WRITE, KO_SLOT_EMPTY, m->tape.g->in.gpu_flags,
		     flag_of_slot(slot));
	return 0;
}

/* ---- Moves ----------------------------------------------------------------------------------- */

/* What the stream is about to wait for. */
static uint32_t stage_of(const struct ko_moves_tape *m, bool receives, bool sends)
{
	uint32_t stage = 0;

	if (receives && m->in_flags)
		stage |= KO_STAGE_FULL | (uint32_t)in_slot(m) << 8;
	if (sends && m->out_flags)
		stage |= KO_STAGE_EMPTY | (uint32_t)out_slot(m) << 16;
	return stage;
}

static int begin_move(struct ko_moves_tape *m, bool receives, bool sends)
{
	int rc = ko_tape_pace(&m->tape);

	/* The first slots are empty: each operation ends so. */
	sends = sends && m->out >= (uint64_t)m->nslots;
	ko_tape_stage(&m->tape, stage_of(m, receives, sends));
	if (rc == 0 && receives)
		rc = wait_data(m);
	if (rc == 0 && sends)
		rc = wait_emptied(m, m->out + 1 - (uint64_t)m->nslots);
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

/* One move: receives, sends, or both. Its elements begin `place` bytes into the vector. `own` is
 * combined with what is received. dst gets the result too. Both may be NULL. */
static int move(struct ko_moves_tape *m, struct ko_gpu_job job, const void *own, void *dst,
		bool receives, bool sends, size_t place, size_t n)
{
	struct ko_gpu_comm *g = m->tape.g;
	size_t len = n * m->tape.run.size;
	int rc = begin_move(m, receives, sends);

	if (receives)
		job.ins[job.nins++] = slot_at(m, &g->in, in_slot(m), place);
	if (own)
		job.ins[job.nins++] = own;
	if (dst)
		job.outs[job.nouts++] = dst;
	if (sends)
		job.outs[job.nouts++] = slot_at(m, &g->out, out_slot(m), place);
	if (rc == 0)
		rc = ko_tape_compute(&m->tape, job, n);
	if (rc == 0 && sends)
		rc = say_full(m, len);
	if (rc == 0 && receives)
		rc = say_empty(m);
	g->attached.sent += sends ? len : 0;
	g->attached.received += receives ? len : 0;
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

	return move(m, (struct ko_gpu_job){ .scales = fn != run->copy }, src, NULL, false, true,
		    place, n);
}

/* Combines the received elements with this rank's own. dst gets the finished result if it is not
 * NULL. With `sends` the result also goes to next. */
static int add(struct ko_run *run, const void *own, void *dst, bool sends, size_t n)
{
	struct ko_moves_tape *m = tape_of(run);
	struct ko_gpu_job job = { .how = run->red.how, .divides = dst && run->red.divides };

	return move(m, job, own, dst, true, sends, place_in(m->src, own), n);
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

	return move(m, (struct ko_gpu_job){ 0 }, NULL, dst, true, sends, place_in(m->dst, dst), n);
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

static const struct ko_moves recorded_moves = {
	.send = record_send,
	.add_and_pass = record_add_and_pass,
	.add_and_keep = record_add_and_keep,
	.add_keep_and_pass = record_add_keep_and_pass,
	.keep_and_pass = record_keep_and_pass,
	.keep = record_keep,
	.keep_own = record_keep_own,
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

/* Sets slots, flags or events, and the counts from before this operation. */
static void prepare(struct ko_moves_tape *m, size_t slot_len)
{
	const struct ko_gpu_comm *g = m->tape.g;
	size_t stride = g->fixed ? g->arena / KO_GPU_SLOTS : slot_len, fit = g->arena / stride;

	m->stride = stride;
	m->nslots = fit < KO_GPU_SLOTS ? (int)fit : KO_GPU_SLOTS;
	m->in_flags = m->tape.captured || !g->in.pair;
	m->out_flags = m->tape.captured || !g->out.pair;
	m->tape.watched = m->in_flags || m->out_flags;
	if (g->in.pair)
		m->in_before = atomic_load_explicit(&g->in.pair->emptied, memory_order_relaxed);
	if (g->out.pair)
		m->out_before = atomic_load_explicit(&g->out.pair->filled, memory_order_relaxed);
}

/* Waits until next, or the proxy, has taken all: the next operation may use other slot lengths, and
 * a proxy does not take slots in order. */
static int finish(struct ko_moves_tape *m)
{
	uint64_t all = m->out < (uint64_t)m->nslots ? m->out : (uint64_t)m->nslots;
	uint64_t waits = m->tape.g->out.staged ? all : all > 0;
	int rc = 0;

	for (uint64_t k = waits; rc == 0 && k-- > 0;) {
		uint64_t filled = m->out - k, slot = (filled - 1) % (uint64_t)m->nslots;

		ko_tape_stage(&m->tape, m->out_flags ? KO_STAGE_EMPTY | (uint32_t)slot << 16 : 0);
		rc = wait_emptied(m, filled);
	}
	return rc;
}

int ko_gpu_go_round(struct ko_moves_tape *m, size_t slot_len, const void *src, void *dst)
{
	struct ko_run *run = &m->tape.run;
	int rc = 0;

	run->moves = &recorded_moves;
	m->src = src;
	m->dst = dst;
	prepare(m, slot_len);
	for (size_t k = 0; rc == 0 && k < run->plan.rounds; k++)
		rc = ko_rounds[run->desc.coll](run, k, src, dst);
	return rc < 0 ? rc : finish(m);
}

int ko_gpu_pass_on(struct ko_moves_tape *m, const void *src, void *dst, size_t len, bool staged)
{
	struct ko_run *run = &m->tape.run;
	int rc = 0;

	m->src = src;
	m->dst = dst;
	prepare(m, whole(len, KO_GPU_ALIGN));
	if (staged == !!m->tape.g->out.staged)
		rc = record_send(run, run->copy, src, NULL, len);
	if (rc == 0 && staged == !!m->tape.g->in.staged)
		rc = record_keep(run, dst, len);
	return rc < 0 ? rc : finish(m);
}
