/* Recording a collective (ko_gpu_record) or messages (ko_gpu_record_messages): the order among
 * others, the comparison with the neighbours' calls, and the choice between ring, registered memory
 * and messages. */
#include "cuda/stream/record.h"
#include "cuda/gpu/proxy.h"
#include "cuda/gpu/window.h"
#include "cuda/stream/direct.h"
#include "cuda/stream/messages.h"
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

/* What the watching thread calls the operation. */
static void note_operation(struct ko_gpu_comm *g, const struct ko_desc *desc)
{
	pthread_mutex_lock(&g->lock);
	g->desc = *desc;
	pthread_mutex_unlock(&g->lock);
}

/* On the stream everything but its end. */
static int put(struct ko_moves_tape *m, const struct ko_call *call, size_t slot_len)
{
	struct ko_tape *t = &m->tape;
	struct ko_gpu_places places = ko_gpu_direct_places(t, call);
	bool pairs = ko_coll_has_messages(call->coll);
	int rc = compare(t, &places);

	if (rc < 0)
		return rc;
	note_operation(t->g, &t->run.desc);
	t->run.algorithm = pairs || ko_gpu_is_direct(&places) ? KO_DIRECT
			   : goes_along(t)                    ? KO_GRID
							      : KO_RING;
	if (pairs)
		return ko_gpu_messages(t, &call, 1);
	if (ko_gpu_is_direct(&places))
		return ko_gpu_direct(t, call, &places);
	return goes_along(t) ? ko_gpu_go_along(m, call->src, call->dst)
			     : ko_gpu_go_round(m, slot_len, call->src, call->dst);
}

/* With the communicator claimed, and this thread on the GPU. */
static int perform(struct ko_moves_tape *m, const struct ko_call *call, size_t slot_len,
		   uint64_t capture)
{
	struct ko_tape *t = &m->tape;
	int rc = follow_last(t->g, t->stream, capture);

	if (rc < 0)
		return rc;
	if (call->comm->nranks > 1)
		rc = put(m, call, slot_len);
	else
		rc = ko_coll_has_messages(call->coll) ? ko_gpu_messages(t, &call, 1)
						      : compute_alone(t, call->src, call->dst);
	if (rc == 0)
		rc = ko_tape_end(t);
	return rc < 0 ? ko_tape_give_up(t, capture, rc)
		      : ko_tape_mark_last(t->g, t->stream, capture);
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

	if (ko_coll_has_messages(coll)) /* they have counted themselves */
		return;
	if (t->run.algorithm == KO_DIRECT)
		model = ko_gpu_direct_model(t);
	else if (t->run.algorithm == KO_GRID)
		model = ko_grid_ops.model(&t->run);
	else
		model = ko_ring_model(&t->run.plan, coll, c->rank, &c->ring, root);

	c->counters.model.sent += model.sent * t->run.size;
	c->counters.model.received += model.received * t->run.size;
}

/* Reports whether a stream is captured; of a call that is wrong the others don't hear. */
static int ask_capture(struct ko_gpu_comm *g, void *stream, uint64_t *out)
{
	int rc = g->driver->capture(g->gpu, stream, out);

	if (rc < 0)
		rc = ko_gpu_error(g, rc, "asking whether the stream is captured");
	return rc == 0 || rc == KOLO_EINVAL ? rc
					    : ko_comm_fail(g->comm, rc, "%s", kolo_last_error());
}

/* A capture draws in Kolo's streams for groups of messages, and has them until it ends. */
static int check_ways(struct ko_gpu_comm *g, uint64_t capture)
{
	uint64_t other = 0;
	int rc = 0;

	for (int k = 0; rc == 0 && capture && g->lanes.out && k < KO_GPU_WAYS_OF_KIND; k++) {
		rc = ask_capture(g, g->lanes.captured_ways[k], &other);
		if (rc == 0 && other && other != capture)
			rc = ko_fail(
				KOLO_EINVAL,
				"rank %d: a stream is captured with messages of a communicator "
				"that another capture has messages of: want that to end before",
				g->comm->rank);
	}
	return rc;
}

/* Can a stream do it? */
static int check(const struct ko_call *call)
{
	const struct kolo_comm *c = call->comm;

	if (ko_coll_reduces((int)call->coll) && c->sums == KO_SUMS_TREE && c->nranks > 1)
		return ko_fail(KOLO_ENOTSUP,
			       "rank %d: kolo_%s on a stream: the order of additions '%s' is for "
			       "calls without a stream; use the order 'ring' or 'grid'",
			       c->rank, ko_coll_name((int)call->coll), ko_sums_name(c->sums));
	return 0;
}

/* Fills in the run of a collective that consists of messages. */
static void plan_messages(struct ko_run *run, const struct ko_call *call)
{
	*run = (struct ko_run){ .comm = call->comm,
				.size = kolo_type_size(call->type),
				.needs = ko_gpu_messages_need };
	run->desc = (struct ko_desc){ .n = call->uneven ? 0 : call->n,
				      .root = call->root,
				      .coll = (uint8_t)call->coll,
				      .type = (uint8_t)call->type,
				      .how = call->uneven ? KO_UNEVEN : 0 };
}

/* On the GPU. */
static int record(struct ko_gpu_comm *g, void *stream, const struct ko_call *call,
		  const struct ko_reducer *red)
{
	struct kolo_comm *c = call->comm;
	struct ko_moves_tape m = { .tape = { .g = g, .stream = stream } };
	struct ko_run *run = &m.tape.run;
	size_t slot_len = 0;
	uint64_t capture;
	int rc = ask_capture(g, stream, &capture);

	if (rc == 0)
		rc = check(call);
	if (rc == 0 && ko_coll_has_messages(call->coll))
		rc = check_ways(g, capture);
	if (rc < 0 || (rc = ko_run_claim(c, call->coll)) < 0)
		return rc;
	if (ko_coll_has_messages(call->coll)) {
		plan_messages(run, call);
	} else {
		slot_len =
			ko_gpu_slot_len(g, call->coll, call->uneven ? largest_count(call) : call->n,
					(size_t)c->nranks, kolo_type_size(call->type));
		ko_collective_plan(run, call, red, ko_gpu_slot_payload(slot_len));
	}
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

/* ---- Messages -------------------------------------------------------------------------------- */

/* All streams become one: the first waits for what is on the others, and in the end they wait for
 * it. */
static int perform_messages(struct ko_tape *t, const struct ko_gpu_calls *calls, uint64_t capture)
{
	struct ko_gpu_comm *g = t->g;
	int rc = follow_last(g, t->stream, capture);

	if (rc < 0)
		return rc;
	note_operation(g, &t->run.desc);
	for (size_t k = 1; rc == 0 && k < calls->nstreams; k++)
		rc = ko_tape_let_wait(t, t->stream, calls->streams[k]);
	if (rc == 0)
		rc = ko_gpu_messages(t, calls->all, calls->n);
	if (rc == 0)
		rc = ko_tape_end(t);
	for (size_t k = 1; rc == 0 && k < calls->nstreams; k++)
		rc = ko_tape_let_wait(t, calls->streams[k], t->stream);
	return rc < 0 ? ko_tape_give_up(t, capture, rc) : ko_tape_mark_last(g, t->stream, capture);
}

/* Are all streams in the same capture, or in none? */
static int ask_captures(struct ko_gpu_comm *g, const struct ko_gpu_calls *calls, uint64_t *capture)
{
	uint64_t other;
	int rc = ask_capture(g, calls->streams[0], capture);

	for (size_t k = 1; rc == 0 && k < calls->nstreams; k++) {
		rc = ask_capture(g, calls->streams[k], &other);
		if (rc == 0 && other != *capture)
			rc = ko_fail(
				KOLO_EINVAL,
				"rank %d: a group of sends and recvs: some of its streams are captured, "
				"and others are not, or for another graph",
				g->comm->rank);
	}
	return rc == 0 ? check_ways(g, *capture) : rc;
}

/* On the GPU. */
static int record_messages(struct ko_gpu_comm *g, const struct ko_gpu_calls *calls)
{
	const struct ko_call *first = calls->all[0];
	enum ko_coll coll = calls->n == 1 ? first->coll : KO_GROUP;
	struct ko_tape t = { .g = g, .stream = calls->streams[0] };
	uint64_t capture;
	int rc = ask_captures(g, calls, &capture);

	if (rc < 0 || (rc = ko_run_claim(g->comm, coll)) < 0)
		return rc;
	t.captured = capture != 0;
	t.run = (struct ko_run){ .comm = g->comm, .needs = ko_gpu_messages_need };
	t.run.desc = (struct ko_desc){ .n = calls->n == 1 ? first->n : calls->n,
				       .root = calls->n == 1 ? first->root : -1,
				       .coll = (uint8_t)coll,
				       .type = (uint8_t)first->type,
				       .how = KO_RECORDED };
	rc = ko_run_begin_p2p(&t.run);
	if (rc == 0)
		rc = perform_messages(&t, calls, capture);
	g->comm->counters.p2p_ops += rc == 0;
	return ko_run_end(&t.run, rc);
}

/* ---- Both ------------------------------------------------------------------------------------ */

/* The others wait for this rank. */
static int enter(struct ko_gpu_comm *g)
{
	int rc = g->driver->enter(g->gpu);

	return rc < 0 ? ko_comm_fail(g->comm, ko_gpu_error(g, rc, "working on it"), "%s",
				     kolo_last_error())
		      : 0;
}

int ko_gpu_record(struct ko_gpu_comm *g, void *stream, const struct ko_call *call,
		  const struct ko_reducer *red)
{
	int rc = enter(g);

	if (rc < 0)
		return rc;
	rc = record(g, stream, call, red);
	g->driver->leave(g->gpu);
	return rc;
}

int ko_gpu_record_messages(struct ko_gpu_comm *g, const struct ko_gpu_calls *calls)
{
	int rc = enter(g);

	if (rc < 0)
		return rc;
	rc = record_messages(g, calls);
	g->driver->leave(g->gpu);
	return rc;
}
