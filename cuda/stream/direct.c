/* Operations on registered memory (ko_gpu_direct).
 *
 * The rank that has a block adds up its elements, in the order that they have round the ring. So
 * the bits are the same as on the ring. */
#include "cuda/stream/direct.h"
#include "cuda/gpu/window.h"

#include "comm/coll/direct.h"

#include <stddef.h>

/* Bytes that a root alone may move to, or from, all others: of more each rank moves its part, round
 * the ring. */
enum { ALONE = 1 << 20 };

/* ---- Where ----------------------------------------------------------------------------------- */

/* Do other ranks read src, or write dst? */
static bool reads_src(enum ko_coll coll)
{
	return coll == KO_ALL_REDUCE || coll == KO_REDUCE_SCATTER || coll == KO_REDUCE;
}

static bool writes_dst(enum ko_coll coll)
{
	return coll == KO_ALL_REDUCE || coll == KO_ALL_GATHER || coll == KO_BROADCAST;
}

/* Can it be done directly, as far as all ranks know without the places? */
static bool may_be_direct(const struct ko_tape *t)
{
	const struct ko_run *run = &t->run;
	size_t others = (size_t)run->comm->nranks - 1, bytes = run->plan.count * run->size;

	if (run->comm->nranks > KO_GPU_PEERS || bytes == 0 || run->desc.coll == KO_BARRIER ||
	    ko_coll_has_messages((enum ko_coll)run->desc.coll))
		return false;
	if (ko_coll_reduces(run->desc.coll) && run->comm->sums != KO_SUMS_RING)
		return false;
	if (run->desc.op == KO_DESC_PREMUL) /* what others multiply with is theirs */
		return false;
	return !ko_coll_has_root(run->desc.coll) || others == 1 || bytes <= ALONE / others;
}

struct ko_gpu_places ko_gpu_direct_places(const struct ko_tape *t, const struct ko_call *call)
{
	const struct ko_gpu_places none = { { 0 }, { 0 } };
	struct ko_gpu_places places = none;
	size_t bytes = t->run.plan.count *
		       t->run.size; /* of the whole vector, which is what others work on */

	if (!t->g->nwindows || !may_be_direct(t))
		return none;
	if (reads_src(call->coll))
		places.src = ko_gpu_window_find(t->g, call->src, bytes);
	if (writes_dst(call->coll))
		places.dst = ko_gpu_window_find(t->g, call->dst, bytes);
	if (reads_src(call->coll) && !places.src.window)
		return none;
	return writes_dst(call->coll) && !places.dst.window ? none : places;
}

/* ---- Together -------------------------------------------------------------------------------- */

/* Do the two ranks' streams meet by flags? */
static bool by_flags(const struct ko_tape *t, int rank)
{
	return rank != t->run.comm->rank && (t->captured || !t->g->marks[rank]);
}

static bool by_events(const struct ko_tape *t, int rank)
{
	return rank != t->run.comm->rank && !by_flags(t, rank);
}

/* The place of a rank's flag from another rank. */
static size_t flag_from(bool done, int rank)
{
	return (done ? offsetof(struct ko_gpu_flags, done) : offsetof(struct ko_gpu_flags, ready)) +
	       (size_t)rank * sizeof(struct ko_gpu_flag);
}

static struct ko_gpu_mark *mark_of(const struct ko_tape *t, int rank, bool done)
{
	return done ? &t->g->marks[rank]->done : &t->g->marks[rank]->ready;
}

/* Clears the flags of the step before. All ranks have seen them, and nobody writes them again
 * before this step is signalled. They must not be cleared sooner: to the watching thread 0 means
 * that a rank has not come. */
static void clear(struct ko_tape *t, bool done)
{
	for (int r = 0; r < t->run.comm->nranks; r++)
		if (by_flags(t, r))
			ko_tape_flag(t, KO_FLAG_WRITE, KO_SLOT_EMPTY, t->g->gpu_own,
				     flag_from(done, r));
}

/* Signals to all others that the stream has come so far. With `done`, that it has done this rank's
 * part. */
static int say(struct ko_tape *t, bool done)
{
	int me = t->run.comm->rank, nranks = t->run.comm->nranks;
	struct ko_gpu_mark *mark = mark_of(t, me, done);
	bool shared = false;
	int rc;

	for (int r = 0; r < nranks; r++) {
		shared = shared || by_events(t, r);
		if (by_flags(t, r))
			ko_tape_flag(t, KO_FLAG_WRITE, KO_SLOT_FULL,
				     ko_gpu_flags_there(t->g, r, KO_GPU_IN), flag_from(done, me));
	}
	rc = ko_tape_flush(t);
	return rc == 0 && shared ? ko_tape_mark(t, &mark->count, mark->event) : rc;
}

/* The stream waits until all others have come so far. */
static int wait_for_all(struct ko_tape *t, bool done)
{
	int me = t->run.comm->rank, nranks = t->run.comm->nranks, rc = 0;
	uint64_t least =
		mark_of(t, me, done)->count; /* of operations by events all have done as many */

	for (int r = 0; r < nranks; r++)
		if (by_flags(t, r))
			ko_tape_flag(t, KO_FLAG_SET, KO_SLOT_FAILED, t->g->gpu_own,
				     flag_from(done, r));
	for (int r = 0; rc == 0 && r < nranks; r++)
		if (by_events(t, r)) {
			struct ko_gpu_mark *mark = mark_of(t, r, done);

			rc = ko_tape_await(t, r, &mark->count, least, mark->event);
		}
	return rc;
}

/* The stream signals to all others that it has come, and waits until all have come. With `done` it
 * signals that it has done its part. An operation calls it in turns, the last time with `done`. */
static int meet(struct ko_tape *t, bool done)
{
	int rc = ko_tape_pace(t);

	for (int r = 0; r < t->run.comm->nranks; r++)
		t->watched = t->watched || by_flags(t, r);
	ko_tape_stage(t,
		      (done ? KO_STAGE_DONE : KO_STAGE_READY) | (t->captured ? KO_STAGE_FLAGS : 0));
	clear(t, !done);
	t->moves++;
	if (rc == 0)
		rc = say(t, done);
	if (rc == 0)
		rc = wait_for_all(t, done);
	return rc < 0 ? rc : ko_tape_flush(t);
}

/* ---- The collectives ------------------------------------------------------------------------- */

/* Lets the job read elements q of every rank's src, in the order of a block of `owner`. */
static void read_all(const struct ko_tape *t, struct ko_gpu_job *job, struct ko_gpu_place src,
		     int owner, struct ko_piece q)
{
	const struct kolo_comm *c = t->run.comm;
	int rank = owner;

	for (int k = 0; k < c->nranks; k++) {
		rank = ko_ring_next(&c->ring, rank);
		job->ins[job->nins++] = ko_gpu_window_at(t->g, rank, src) + q.first * t->run.size;
	}
	job->how = t->run.red.how;
	job->scales = t->run.red.scales;
	job->divides = t->run.red.divides;
	t->g->attached.received += q.n * t->run.size * (size_t)(c->nranks - 1);
}

/* Lets the job write elements q of every rank's dst, except this rank's if `own` lies there. */
static void write_all(const struct ko_tape *t, struct ko_gpu_job *job, struct ko_gpu_place dst,
		      struct ko_piece q, const void *own)
{
	const struct kolo_comm *c = t->run.comm;

	for (int r = 0; r < c->nranks; r++) {
		char *out = ko_gpu_window_at(t->g, r, dst) + q.first * t->run.size;

		if (r != c->rank || out != own)
			job->outs[job->nouts++] = out;
	}
	t->g->attached.sent += q.n * t->run.size * (size_t)(c->nranks - 1);
}

/* This rank's part. */
static int do_part(struct ko_tape *t, const struct ko_call *call,
		   const struct ko_gpu_places *places)
{
	const struct ko_plan *p = &t->run.plan;
	int me = call->comm->rank;
	struct ko_piece own = ko_plan_block(p, ko_coll_has_root((int)call->coll) ? 0 : me);
	struct ko_gpu_job job = ko_gpu_guarded(t->g);

	if (ko_coll_has_root((int)call->coll) && me != call->root)
		return 0;
	if (reads_src(call->coll))
		read_all(t, &job, places->src, me, own);
	else
		job.ins[job.nins++] = call->src;
	if (writes_dst(call->coll))
		write_all(t, &job, places->dst, own, reads_src(call->coll) ? NULL : call->src);
	else
		job.outs[job.nouts++] = call->dst;
	return ko_tape_compute(t, job, own.n);
}

int ko_gpu_direct(struct ko_tape *t, const struct ko_call *call, const struct ko_gpu_places *places)
{
	int rc = meet(t, false);

	if (rc == 0)
		rc = do_part(t, call, places);
	return rc < 0 ? rc : meet(t, true);
}

struct ko_model ko_gpu_direct_model(const struct ko_tape *t)
{
	const struct kolo_comm *c = t->run.comm;
	enum ko_coll coll = (enum ko_coll)t->run.desc.coll;
	size_t others = (size_t)c->nranks - 1;

	if (coll == KO_BROADCAST) /* which root writes to all */
		return (struct ko_model){ c->rank == t->run.desc.root ? others * t->run.plan.count
								      : 0,
					  0 };
	return ko_direct_model(&t->run.plan, coll, c->rank, c->nranks, t->run.desc.root,
			       (struct ko_direct_way){ .windows = coll != KO_REDUCE });
}
