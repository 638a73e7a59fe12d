/* all_to_all, gather and scatter on streams (ko_gpu_alltoall), through memory that all ranks have
 * mapped. */
#include "cuda/stream/alltoall.h"
#include "cuda/gpu/map.h"
#include "cuda/gpu/window.h"
#include "cuda/stream/direct.h"

/* ---- The memory ------------------------------------------------------------------------------ */

/* Makes the memory, within the turn of the call that needs it. */
static int make_memory(struct ko_gpu_comm *g)
{
	bool held = ko_order_hold(g->comm->order);
	int rc = ko_gpu_window_make(g, g->arena, &g->staging_memory, &g->staging);

	ko_order_unhold(g->comm->order, held);
	return rc;
}

int ko_gpu_alltoall_open(struct ko_gpu_comm *g, void *stream, const struct ko_call *call)
{
	const char *name = ko_coll_name((int)call->coll);
	uint64_t capture;
	int rc = 0;

	if (g->staging.at || g->comm->nranks == 1)
		return 0;
	if (!ko_gpu_reaches_all(g))
		return ko_fail(
			KOLO_ENOTSUP,
			"rank %d: kolo_%s on a stream: want up to %d ranks of one host whose GPUs reach each other, without "
			"a transport by name",
			g->comm->rank, name, KO_GPU_PEERS);
	if ((rc = g->driver->enter(g->gpu)) < 0)
		return ko_comm_fail(g->comm, ko_gpu_error(g, rc, "working on it"), "%s",
				    kolo_last_error());
	rc = g->driver->capture(g->gpu, stream, &capture);
	if (rc == 0 && capture)
		rc = ko_fail(
			KOLO_EINVAL,
			"rank %d: kolo_%s: the first all_to_all, gather or scatter of a communicator makes memory, which can't "
			"be captured: want one before",
			g->comm->rank, name);
	else if (rc < 0)
		rc = ko_comm_fail(g->comm,
				  ko_gpu_error(g, rc, "asking whether the stream is captured"),
				  "%s", kolo_last_error());
	else
		rc = make_memory(g);
	g->driver->leave(g->gpu);
	return rc;
}

void ko_gpu_alltoall_close(struct ko_gpu_comm *g)
{
	ko_gpu_window_close(g, &g->staging);
	if (ko_gpu_may_release(g))
		g->driver->release(g->gpu, &g->staging_memory);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Elements [first, first + n) of each block. */
struct slice {
	const struct ko_call *call;
	size_t first, n;
	size_t stride; /* bytes between blocks in the memory */
};

static bool is_root(const struct slice *s)
{
	return s->call->comm->rank == s->call->root;
}

/* Does this rank have a block for `rank`; or get one from there? */
static bool gives(const struct slice *s, int rank)
{
	switch (s->call->coll) {
	case KO_GATHER: return rank == s->call->root;
	case KO_SCATTER: return is_root(s);
	default: return true;
	}
}

static bool gets(const struct slice *s, int rank)
{
	switch (s->call->coll) {
	case KO_GATHER: return is_root(s);
	case KO_SCATTER: return rank == s->call->root;
	default: return true;
	}
}

/* The block in src for `rank`. */
static const char *given(const struct ko_tape *t, const struct slice *s, int rank)
{
	size_t block = s->call->coll == KO_GATHER ? 0 : (size_t)rank * s->call->n;

	return (const char *)s->call->src + (block + s->first) * t->run.size;
}

static char *got(const struct ko_tape *t, const struct slice *s, int rank)
{
	size_t block = s->call->coll == KO_SCATTER ? 0 : (size_t)rank * s->call->n;

	return (char *)s->call->dst + (block + s->first) * t->run.size;
}

static int copy(struct ko_tape *t, void *to, const void *from, size_t n, bool others)
{
	struct ko_gpu_job job = { .nins = 1, .ins = { from }, .nouts = 1, .outs = { to } };

	job.unless = others ? ko_gpu_failed_flag(t->g) : NULL;
	return to == from ? 0 : ko_tape_compute(t, job, n);
}

/* Puts blocks for other ranks into this rank's memory, in the order of those ranks. */
static int put(struct ko_tape *t, const struct slice *s)
{
	int me = t->run.comm->rank, rc = 0;

	for (int r = 0; rc == 0 && r < t->run.comm->nranks; r++)
		if (r != me && gives(s, r)) {
			rc = copy(t, t->g->staging.mine + (size_t)r * s->stride, given(t, s, r),
				  s->n, false);
			t->g->attached.sent += s->n * t->run.size;
		}
	return rc;
}

/* Takes this rank's blocks from the others' memory. */
static int take(struct ko_tape *t, const struct slice *s)
{
	int me = t->run.comm->rank, rc = 0;

	for (int r = 0; rc == 0 && r < t->run.comm->nranks; r++)
		if (r != me && gets(s, r)) {
			rc = copy(t, got(t, s, r), t->g->staging.at[r] + (size_t)me * s->stride,
				  s->n, true);
			t->g->attached.received += s->n * t->run.size;
		}
	return rc;
}

int ko_gpu_alltoall(struct ko_tape *t, const struct ko_call *call)
{
	size_t nranks = (size_t)call->comm->nranks,
	       stride = t->g->arena / nranks / KO_GPU_ALIGN * KO_GPU_ALIGN;
	size_t most = stride / t->run.size;
	struct slice s = { .call = call, .stride = stride };
	int me = call->comm->rank, rc = 0;

	if (gives(&s, me) && gets(&s, me))
		rc = copy(t, got(t, &s, me), given(t, &s, me), call->n, false);
	for (; rc == 0 && s.first < call->n; s.first += most) {
		s.n = ko_min_size(most, call->n - s.first);
		rc = put(t, &s);
		if (rc == 0)
			rc = ko_gpu_meet(t, false);
		if (rc == 0)
			rc = take(t, &s);
		if (rc == 0)
			rc = ko_gpu_meet(t, true);
	}
	return rc;
}

struct ko_model ko_gpu_alltoall_model(const struct ko_tape *t)
{
	const struct kolo_comm *c = t->run.comm;
	size_t n = t->run.plan.block, all = n * ((size_t)c->nranks - 1);
	bool root = c->rank == t->run.desc.root;

	switch ((enum ko_coll)t->run.desc.coll) {
	case KO_GATHER: return (struct ko_model){ root ? 0 : n, root ? all : 0 };
	case KO_SCATTER: return (struct ko_model){ root ? all : 0, root ? 0 : n };
	default: return (struct ko_model){ all, all };
	}
}
