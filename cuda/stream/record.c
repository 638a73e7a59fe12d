/* Recording a collective (ko_gpu_record): its order among others, the comparison with the
 * neighbours' calls, and the choice between ring, registered memory and all_to_all. */
#include "cuda/stream/record.h"
#include "cuda/gpu/proxy.h"
#include "cuda/gpu/window.h"
#include "cuda/stream/alltoall.h"
#include "cuda/stream/direct.h"
#include "cuda/stream/moves.h"

#include "comm/coll/collectives.h"
#include "comm/coll/grid.h"
#include "comm/coll/ring.h"
#include "comm/core/wait.h"

/* ---- Order ----------------------------------------------------------------------------------- */

/* Lets the stream wait for the communicator's last operation, on whatever stream that was. A
 * captured operation waits only for others of its capture. The program orders graphs. */
static int follow_last(struct ko_gpu_comm *g, void *stream, uint64_t capture)
{
	const struct ko_gpu_last *last = capture ? &g->captured : &g->last;
	int rc = 0;

	if (last->recorded && last->capture == capture)
		rc = g->driver->event_await(g->gpu, stream, last->event);
	return rc < 0 ? ko_gpu_error(g, rc, "waiting for the operation before on its stream") : 0;
}

/* ---- An operation ---------------------------------------------------------------------------- */

/* One rank alone. */
static int compute_alone(struct ko_tape *t, const void *src, void *dst)
{
	struct ko_gpu_job job = { .nins = 1, .ins = { src }, .nouts = 1, .outs = { dst } };

	job.how = t->run.red.how;
	job.scales = ko_coll_reduces(t->run.desc.coll) && t->run.red.scales;
	return dst == src && !job.scales ? 0 : ko_tape_compute(t, job, t->run.plan.count);
}

/* Do the neighbours do the same? Of two neighbours at least one sees the other's post. */
static int compare(struct ko_tape *t, const struct ko_gpu_places *mine)
{
	struct ko_gpu_comm *g = t->g;
	const struct ko_gpu_ring *ring = &g->rings[KO_GPU_ALL];
	struct kolo_comm *c = t->run.comm;
	int rc;

	ko_gpu_places_post(g, t->run.desc.seq, mine);
	__sync_synchronize(); /* pairs with itself there */
	if ((rc = ko_wait_compare(c, &t->run.desc, ring->in.peer)) < 0 ||
	    (rc = ko_wait_compare(c, &t->run.desc, ring->out.peer)) < 0 ||
	    (ring->proxy && (rc = ko_gpu_proxy_compare(g, &t->run.desc)) < 0))
		return rc;
	return ko_gpu_places_compare(g, &t->run.desc, mine);
}

/* Does it go through groups and along rails? */
static bool goes_along(const struct ko_tape *t)
{
	const struct kolo_comm *c = t->run.comm;

	return c->rails &&
	       ko_grid_ops.end((enum ko_coll)t->run.desc.coll, &c->agreed.costs, c->nranks, false);
}

/* With the communicator claimed, and this thread on the GPU. */
static int perform(struct ko_moves_tape *m, const struct ko_call *call, size_t slot_len,
		   uint64_t capture)
{
	struct ko_tape *t = &m->tape;
	struct ko_gpu_comm *g = t->g;
	bool pairs = ko_coll_has_messages(call->coll);
	struct ko_gpu_places places;
	int rc;

	if ((rc = follow_last(g, t->stream, capture)) < 0)
		return rc;
	if (call->comm->nranks == 1) {
		rc = compute_alone(t, call->src, call->dst);
		return rc < 0 ? rc : ko_tape_mark_last(g, t->stream, capture);
	}
	places = ko_gpu_direct_places(t, call);
	if ((rc = compare(t, &places)) < 0)
		return rc;
	pthread_mutex_lock(&g->lock);
	g->desc = t->run.desc;
	pthread_mutex_unlock(&g->lock);
	t->run.algorithm = pairs || ko_gpu_is_direct(&places) ? KO_DIRECT
			   : goes_along(t)                    ? KO_GRID
							      : KO_RING;
	if (pairs)
		rc = ko_gpu_alltoall(t, call);
	else if (ko_gpu_is_direct(&places))
		rc = ko_gpu_direct(t, call, &places);
	else if (goes_along(t))
		rc = ko_gpu_go_along(m, call->src, call->dst);
	else
		rc = ko_gpu_go_round(m, slot_len, call->src, call->dst);
	if (rc == 0)
		rc = ko_tape_end(t);
	return rc < 0 ? ko_tape_give_up(t, capture, rc) : ko_tape_mark_last(g, t->stream, capture);
}

static size_t largest_count(const struct ko_call *call)
{
	size_t most = 0;

	for (int r = 0; r < call->comm->nranks; r++)
		most = call->counts[r] > most ? call->counts[r] : most;
	return most;
}

static void count(const struct ko_tape *t)
{
	struct kolo_comm *c = t->run.comm;
	int root = t->run.desc.how & KO_UNEVEN ? -1 : t->run.desc.root;
	enum ko_coll coll = (enum ko_coll)t->run.desc.coll;
	struct ko_model model;

	if (ko_coll_has_messages(coll))
		model = ko_gpu_alltoall_model(t);
	else if (t->run.algorithm == KO_DIRECT)
		model = ko_gpu_direct_model(t);
	else if (t->run.algorithm == KO_GRID)
		model = ko_grid_ops.model(&t->run);
	else
		model = ko_ring_model(&t->run.plan, coll, c->rank, &c->ring, root);

	c->counters.model.sent += model.sent * t->run.size;
	c->counters.model.received += model.received * t->run.size;
}

/* On the GPU. */
static int record(struct ko_gpu_comm *g, void *stream, const struct ko_call *call,
		  const struct ko_reducer *red)
{
	struct kolo_comm *c = call->comm;
	size_t n = call->uneven ? largest_count(call) : call->n;
	size_t slot_len =
		ko_gpu_slot_len(g, call->coll, n, (size_t)c->nranks, kolo_type_size(call->type));
	struct ko_moves_tape m = { .tape = { .g = g, .stream = stream } };
	struct ko_run *run = &m.tape.run;
	uint64_t capture;
	int rc = g->driver->capture(g->gpu, stream, &capture);

	if (rc < 0)
		rc = ko_gpu_error(g, rc, "asking whether the stream is captured");
	if (rc < 0) /* the others wait for this rank; of a call that is wrong they don't hear */
		return rc == KOLO_EINVAL ? rc : ko_comm_fail(c, rc, "%s", kolo_last_error());
	if (ko_coll_reduces((int)call->coll) && c->sums == KO_SUMS_TREE && c->nranks > 1)
		return ko_fail(KOLO_ENOTSUP,
			       "rank %d: kolo_%s on a stream: the order of additions '%s' is for "
			       "calls without a stream; use the order 'ring' or 'grid'",
			       c->rank, ko_coll_name((int)call->coll), ko_sums_name(c->sums));
	if ((rc = ko_run_claim(c, call->coll)) < 0)
		return rc;
	ko_collective_plan(run, call, red, ko_gpu_slot_payload(slot_len));
	run->desc.how |= KO_RECORDED;
	m.tape.captured = capture != 0;
	rc = ko_run_begin(run);
	if (rc == 0)
		rc = perform(&m, call, slot_len, capture);
	if (rc == 0 && c->nranks > 1)
		count(&m.tape);
	if (rc == 0)
		c->counters.ops[run->algorithm]++;
	return ko_run_end(run, rc);
}

int ko_gpu_record(struct ko_gpu_comm *g, void *stream, const struct ko_call *call,
		  const struct ko_reducer *red)
{
	int rc = g->driver->enter(g->gpu);

	if (rc < 0) /* the others wait for this rank */
		return ko_comm_fail(g->comm, ko_gpu_error(g, rc, "working on it"), "%s",
				    kolo_last_error());
	rc = record(g, stream, call, red);
	g->driver->leave(g->gpu);
	return rc;
}
