/* What operations put on a stream: flag operations in batches, events, kernels. It also keeps
 * recording from getting too far ahead of the stream. */
#include "cuda/stream/tape.h"

#include "comm/core/wait.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>

/* ---- Flags ----------------------------------------------------------------------------------- */

void ko_tape_flag(struct ko_tape *t, enum ko_flag_kind kind, uint32_t value, char *flags,
		  size_t offset)
{
	t->ops[t->nops++] = (struct ko_flag_op){ kind, value, flags + offset };
}

static void tell(struct ko_tape *t, uint32_t stage)
{
	size_t where = offsetof(struct ko_gpu_flags, where) +
		       (size_t)t->number * sizeof(struct ko_gpu_where);

	if (!t->watched)
		return;
	ko_tape_flag(t, KO_FLAG_WRITE, stage, t->g->gpu_own,
		     where + offsetof(struct ko_gpu_where, stage));
	ko_tape_flag(t, KO_FLAG_WRITE, 0, t->g->gpu_own,
		     where + offsetof(struct ko_gpu_where, looked));
}

void ko_tape_stage(struct ko_tape *t, uint32_t stage)
{
	tell(t, stage | (KO_STAGE_ACTIVE + (uint32_t)(t->moves & 255) * KO_STAGE_MOVE));
}

int ko_tape_flush(struct ko_tape *t)
{
	int n = t->nops, rc;

	t->nops = 0;
	if (n == 0)
		return 0;
	rc = t->g->driver->flags(t->g->gpu, t->stream, t->ops, n);
	return rc < 0 ? ko_gpu_error(t->g, rc, "recording a wait or a write") : 0;
}

int ko_tape_end(struct ko_tape *t)
{
	tell(t, 0);
	return ko_tape_flush(t);
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* A wait until another rank, a thread of this process, has recorded its event so often. */
struct recorded {
	_Atomic uint64_t *count;
	uint64_t least;
};

static int try_recorded(void *what)
{
	const struct recorded *r = what;

	/* Pairs with the release in ko_tape_mark: the event was recorded. */
	return atomic_load_explicit(r->count, memory_order_acquire) >= r->least ? 0 : KO_EAGAIN;
}

int ko_tape_await(struct ko_tape *t, int peer, _Atomic uint64_t *count, uint64_t least, void *event)
{
	struct recorded what = { count, least };
	int rc = ko_tape_flush(t); /* others may wait for what is not on the stream yet */

	if (rc == 0)
		rc = ko_wait(&t->run, peer, "the GPU's stream", KO_TRACE_DATA, try_recorded, &what);
	if (rc == 0 && (rc = t->g->driver->event_await(t->g->gpu, t->stream, event)) < 0)
		rc = ko_gpu_error(t->g, rc, "waiting for an event");
	return rc;
}

int ko_tape_mark(struct ko_tape *t, _Atomic uint64_t *count, void *event)
{
	struct kolo_comm *c = t->run.comm;
	int rc = t->g->driver->event_record(t->g->gpu, event, t->stream);

	if (rc < 0)
		return ko_gpu_error(t->g, rc, "recording an event");
	/* This rank alone writes it. Pairs with the acquire in try_recorded. */
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
			      memory_order_release);
	ko_bells_ring(c->bells, c->rank, c->nranks);
	return 0;
}

/* ---- Order ----------------------------------------------------------------------------------- */

int ko_tape_mark_last(struct ko_gpu_comm *g, void *stream, uint64_t capture)
{
	struct ko_gpu_last *last = capture ? &g->captured : &g->last;
	int rc = g->driver->event_record(g->gpu, last->event, stream);

	if (rc < 0)
		return ko_gpu_error(g, rc, "recording an event");
	last->capture = capture;
	last->recorded = true;
	return 0;
}

int ko_tape_let_wait(struct ko_tape *t, void *waits, void *comes)
{
	struct ko_gpu_comm *g = t->g;
	void *event = t->captured ? g->captured.event : g->last.event;
	int rc = g->driver->event_record(g->gpu, event, comes);

	if (rc == 0)
		rc = g->driver->event_await(g->gpu, waits, event);
	return rc < 0 ? ko_gpu_error(g, rc, "letting one stream wait for another") : 0;
}

int ko_tape_give_up(struct ko_tape *t, uint64_t capture, int rc)
{
	char why[KO_TEXT];

	snprintf(why, sizeof(why), "%s", kolo_last_error());
	t->nops = 0;
	ko_tape_end(t);
	ko_tape_mark_last(t->g, t->stream, capture);
	return ko_fail(rc, "%s", why);
}

/* ---- Kernels --------------------------------------------------------------------------------- */

int ko_tape_compute(struct ko_tape *t, struct ko_gpu_job job, size_t n)
{
	int rc;

	job.n = n;
	job.type = (enum kolo_type)t->run.desc.type;
	job.s = t->run.red.s;
	if (n == 0)
		return 0;
	rc = t->g->driver->compute(t->g->gpu, t->stream, &job);
	return rc < 0 ? ko_gpu_error(t->g, rc, "launching a kernel") : 0;
}

int ko_tape_copy(struct ko_tape *t, enum kolo_type type, void *to, const void *from, size_t n)
{
	struct ko_gpu_job job = ko_gpu_guarded(t->g);
	int rc;

	if (n == 0 || to == from)
		return 0;
	job.n = n;
	job.type = type;
	job.ins[job.nins++] = from;
	job.outs[job.nouts++] = to;
	rc = t->g->driver->compute(t->g->gpu, t->stream, &job);
	return rc < 0 ? ko_gpu_error(t->g, rc, "launching a kernel") : 0;
}

/* Otherwise the driver's queue of launches fills up, and the thread that blocks there may be the
 * one that must launch what empties it. The wait ends when the communicator fails, because then the
 * stream goes on. */
int ko_tape_try_pace(struct ko_tape *t)
{
	struct ko_gpu_comm *g = t->g;
	struct ko_gpu_pace *pace = &g->pace[t->number];
	unsigned k = pace->moves / KO_GPU_PACE;
	int rc;

	if (t->captured)
		return 0;
	if (pace->moves % KO_GPU_PACE == 0) {
		if ((rc = ko_tape_flush(t)) < 0)
			return rc;
		if (k > 0 && g->driver->event_poll(g->gpu, pace->event[(k - 1) % 2]) == KO_EAGAIN)
			return KO_EAGAIN;
		rc = g->driver->event_record(g->gpu, pace->event[k % 2], t->stream);
		if (rc < 0)
			return ko_gpu_error(g, rc, "recording an event");
	}
	pace->moves++;
	return 0;
}

int ko_tape_nap(const struct ko_tape *t)
{
	nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	return ko_roster_cause(t->run.comm->roster);
}

int ko_tape_pace(struct ko_tape *t)
{
	int rc;

	while ((rc = ko_tape_try_pace(t)) == KO_EAGAIN)
		if ((rc = ko_tape_nap(t)) < 0)
			return rc;
	return rc;
}
