/* The collectives as their callers see them: check the arguments; at once, or on a queue's thread, post what is asked
 * for, make a plan, run its rounds. With one rank there is nobody to talk to and the result is computed on the spot. */
#include "clock.h"
#include "direct.h"
#include "learn.h"
#include "oneshot.h"
#include "queue.h"
#include "rounds.h"
#include "watch.h"

#include <stdint.h>

/* What a caller passed. */
struct args {
	struct kolo_comm *comm;
	enum ko_coll coll;
	const void *src;
	void *dst;
	size_t n;
	enum kolo_type type;
	enum kolo_op op; /* KOLO_SUM where there is none */
	int root;        /* -1 where there is none */
	struct kolo_queue *queue;
};

/* What a queue has to do. */
struct work {
	struct args args;
	struct ko_reducer red; /* of op, which may be destroyed before the queue comes to it */
	uint64_t place;        /* in the communicator's order */
};

_Static_assert(sizeof(struct work) <= KO_WORK_ARG, "an item of a queue has room for a call");

/* ---- Arguments ------------------------------------------------------------------------------------------ */

static bool overlap(const char *a, size_t alen, const char *b, size_t blen)
{
	return a < b + blen && b < a + alen;
}

/* Buffers that this rank needs are there, and overlap only as "in place" allows. */
static int check_buffers(const struct args *a, const char *coll, size_t size)
{
	int rank = a->comm->rank, nranks = a->comm->nranks;
	size_t block = a->n * size, total = block * (size_t)nranks;
	const char *src = a->src, *dst = a->dst;
	bool needs_src = a->coll != KO_BROADCAST || rank == a->root;
	bool needs_dst = a->coll != KO_REDUCE || rank == a->root;
	size_t src_len = a->coll == KO_REDUCE_SCATTER ? total : block;
	size_t dst_len = a->coll == KO_ALL_GATHER ? total : block;
	/* What this rank alone gives, and where that part of the result lies: one and the same in place. */
	const char *own_src = src, *own_dst = dst;

	if (a->n == 0)
		return 0;
	if ((needs_src && !src) || (needs_dst && !dst))
		return ko_fail(KOLO_EINVAL, "rank %d: kolo_%s: %s is NULL", rank, coll,
			       needs_src && !src ? "src" : "dst");
	if (!needs_src || !needs_dst)
		return 0;
	if (a->coll == KO_ALL_GATHER)
		own_dst = dst + (size_t)rank * block;
	if (a->coll == KO_REDUCE_SCATTER)
		own_src = src + (size_t)rank * block;
	if (own_src == own_dst || !overlap(src, src_len, dst, dst_len))
		return 0;
	return ko_fail(KOLO_EINVAL,
		       "rank %d: kolo_%s: src and dst overlap, and not as the call allows in place", rank,
		       coll);
}

static bool reduces(enum ko_coll coll)
{
	return coll == KO_REDUCE || coll == KO_ALL_REDUCE || coll == KO_REDUCE_SCATTER;
}

static int check_args(const struct args *a, const char *coll)
{
	size_t most, size;

	if (!a->comm)
		return ko_fail(KOLO_EINVAL, "kolo_%s: comm is NULL", coll);
	size = kolo_type_size(a->type);
	if (!size)
		return ko_fail(KOLO_EINVAL, "rank %d: kolo_%s: %d is no type", a->comm->rank, coll,
			       (int)a->type);
	if (reduces(a->coll) && !kolo_op_name(a->op) && !ko_comm_premul(a->comm, a->op, a->type))
		return ko_fail(KOLO_EINVAL, "rank %d: kolo_%s: %d is no op for %s on this communicator",
			       a->comm->rank, coll, a->op, kolo_type_name(a->type));
	if ((a->coll == KO_BROADCAST || a->coll == KO_REDUCE) && (a->root < 0 || a->root >= a->comm->nranks))
		return ko_fail(KOLO_EINVAL, "rank %d: kolo_%s: root %d: want 0 to %d", a->comm->rank, coll,
			       a->root, a->comm->nranks - 1);
	most = SIZE_MAX / 2 / size / (size_t)a->comm->nranks;
	if (a->n > most)
		return ko_fail(KOLO_EINVAL,
			       "rank %d: kolo_%s: %zu elements are more than an address space holds",
			       a->comm->rank, coll, a->n);
	return check_buffers(a, coll, size);
}

/* ---- Beginning and end ---------------------------------------------------------------------------------- */

/* For those who want to see each operation. */
static void tell(const struct ko_run *run, int rc)
{
	struct kolo_comm *c = run->comm;
	char text[KO_DESC_TEXT];

	ko_desc_text(&run->desc, text);
	ko_log(&c->log, KOLO_LOG_TRACE, "%s: %s after %.1f us", text, kolo_strerror(rc),
	       (double)(ko_now_ns() - run->since) / 1e3);
	ko_trace_add(c->trace, KO_TRACE_OP, run->since, run->desc.seq, text);
}

static struct ko_model model_of(const struct ko_run *run)
{
	const struct kolo_comm *c = run->comm;
	enum ko_coll coll = (enum ko_coll)run->desc.coll;

	if (run->way != KO_NO_WAY)
		return ko_plan_direct_model(&run->plan, coll, c->rank, c->nranks, run->desc.root,
					    run->way == KO_BY_WINDOW, run->giver_in_place, run->shared);
	return (run->board ? ko_plan_board_model : ko_plan_model)(&run->plan, coll, c->rank, c->nranks,
								  run->desc.root);
}

/* Whatever an operation fails with, the others learn it: a failed communicator stays failed everywhere. */
static int end(struct ko_run *run, int rc)
{
	struct kolo_comm *c = run->comm;
	struct ko_model model;

	if (run->stores == KO_STREAMING) /* other threads of the caller may read dst next */
		ko_stream_fence();
	if (rc == 0)
		rc = ko_drain(run);
	if (rc < 0) {
		rc = ko_comm_fail(c, rc, "%s", kolo_last_error());
	} else {
		model = model_of(run);
		c->model.sent += model.sent * run->size;
		c->model.received += model.received * run->size;
		ko_learn(run);
		c->ops[run->way != KO_NO_WAY ? KO_DIRECT : run->board ? KO_BOARD : KO_RING]++;
		ko_roster_finish(c->roster, c->rank, run->desc.seq);
		ko_roster_ring(c->roster, c->rank, c->nranks);
	}
	if (run->since)
		tell(run, rc);
	atomic_store_explicit(&c->busy, false, memory_order_release);
	return rc;
}

/* Does what this rank alone gives lie where that part of the result goes? */
static bool in_place(const struct args *a, size_t size)
{
	size_t before = (size_t)a->comm->rank * a->n * size;

	return (const char *)a->src + (a->coll == KO_REDUCE_SCATTER ? before : 0) ==
	       (const char *)a->dst + (a->coll == KO_ALL_GATHER ? before : 0);
}

/* What goes to dst, but for what is read just before, and lies in the caches. */
static size_t written_bytes(const struct args *a, const struct ko_run *run)
{
	size_t block = a->n * run->size;
	bool is_root = a->comm->rank == a->root;

	switch (a->coll) {
	case KO_REDUCE: return is_root && !run->in_place ? block : 0;
	case KO_BROADCAST: return is_root && run->in_place ? 0 : block;
	case KO_ALL_GATHER: return block * (size_t)a->comm->nranks;
	default: return run->in_place ? 0 : block;
	}
}

static void choose_algorithm(struct ko_run *run, const struct args *a)
{
	const struct kolo_comm *c = run->comm;
	size_t bytes = run->plan.count * run->size;

	if (c->nranks == 1)
		return;
	run->board = bytes < c->algorithms.board_end[a->coll];
	run->may_read = bytes >= c->algorithms.read_begin[a->coll];
	run->offers = run->may_read || (c->nwindows && bytes >= c->algorithms.window_begin[a->coll]);
	run->in_place = in_place(a, run->size);
	run->written = run->board ? 0 : written_bytes(a, run);
	if (run->may_read)
		run->began_ns = ko_now_ns();
}

/* As early as possible: while the operation is prepared, the cell that this rank will write comes to its core. What goes
 * another way needs the line of an offer at most. */
static void expect_cell(const struct args *a, size_t size)
{
	const struct kolo_comm *c = a->comm;
	bool shared = a->coll == KO_REDUCE_SCATTER || a->coll == KO_ALL_GATHER;
	size_t mine = a->n * size, whole = shared ? mine * (size_t)c->nranks : mine;

	if (c->nranks == 1 || (a->coll == KO_BROADCAST && c->rank != a->root))
		return;
	if (whole >= c->algorithms.board_end[a->coll])
		mine = 0;
	else if (a->coll == KO_REDUCE_SCATTER)
		mine = whole;
	ko_board_expect(&c->board, c->rank, mine);
}

static struct ko_reducer reducer_of(const struct args *a)
{
	const struct ko_reducer *premul = ko_comm_premul(a->comm, a->op, a->type);

	return premul ? *premul : ko_reducer_make(a->type, a->op, a->comm->nranks);
}

/* After it every rank knows what this one is about to do. `red` NULL: made here. */
static int begin(struct ko_run *run, const struct args *a, const struct ko_reducer *red)
{
	struct kolo_comm *c = a->comm;
	size_t size = kolo_type_size(a->type);
	int rc;

	if (atomic_exchange_explicit(&c->busy, true, memory_order_acquire))
		return ko_fail(KOLO_EINVAL,
			       "rank %d: kolo_%s: another thread is in an operation on this communicator",
			       c->rank, ko_coll_name(a->coll));
	expect_cell(a, size);
	*run = (struct ko_run){
		.comm = c, .size = size, .copy = ko_copy(a->type), .red = red ? *red : reducer_of(a)
	};
	if (c->told)
		run->since = ko_now_ns();
	run->desc = (struct ko_desc){ .seq = ++c->seq,
				      .n = a->n,
				      .root = a->root,
				      .coll = (uint8_t)a->coll,
				      .type = (uint8_t)a->type,
				      .op = (uint8_t)((int)a->op < KO_OP_FIRST ? a->op : KO_OP_PREMUL) };
	run->plan = ko_plan_make(a->coll, a->n, size, c->nranks, c->limits.slot_len);
	choose_algorithm(run, a);
	c->history = ko_desc_history(c->history, &run->desc);
	run->tag = (uint32_t)c->history;
	ko_roster_enter(c->roster, c->rank, &run->desc);
	rc = ko_watch_health(c, &run->desc);
	return rc < 0 ? end(run, rc) : 0;
}

/* One rank alone. */
static void compute_alone(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;

	if (n == 0)
		return;
	if (reduces((enum ko_coll)run->desc.coll)) {
		run->red.first(dst, src, n, &run->red.s);
		run->red.finish(dst, dst, n, &run->red.s);
	} else {
		run->copy(dst, src, n, NULL);
	}
}

static int go_round(struct ko_run *run, const void *src, void *dst)
{
	/* A barrier is a reduce-scatter of nothing: after its nranks - 1 steps a slot that left each rank has come here, by
	 * way of all the others. */
	static ko_round_fn *const rounds[KO_NCOLLS] = {
		[KO_BARRIER] = ko_reduce_scatter_round,
		[KO_BROADCAST] = ko_broadcast_round,
		[KO_REDUCE] = ko_reduce_round,
		[KO_ALL_REDUCE] = ko_all_reduce_round,
		[KO_REDUCE_SCATTER] = ko_reduce_scatter_round,
		[KO_ALL_GATHER] = ko_all_gather_round,
	};
	int rc = 0;

	ko_learn_stores(run);
	for (size_t k = 0; rc == 0 && k < run->plan.rounds; k++) {
		int64_t since = run->since ? ko_now_ns() : 0;

		rc = rounds[run->desc.coll](run, k, src, dst);
		ko_trace_add(run->comm->trace, KO_TRACE_ROUND, since, k, NULL);
	}
	return rc;
}

/* All of a collective, on the thread that is to do it. */
static int perform(const struct args *a, const struct ko_reducer *red)
{
	struct ko_run run;
	int rc = begin(&run, a, red);
	bool done = false;

	if (rc < 0)
		return rc;
	if (a->comm->nranks == 1)
		compute_alone(&run, a->src, a->dst);
	else if (run.offers)
		rc = ko_direct(&run, a->src, a->dst, &done);
	if (rc == 0 && a->comm->nranks > 1 && !done)
		rc = run.board ? ko_oneshot(&run, a->src, a->dst) : go_round(&run, a->src, a->dst);
	return end(&run, rc);
}

/* ---- Now, or in a queue --------------------------------------------------------------------------------- */

/* Blocks until what was called before `place` is done, or the communicator has failed: a queue may be held up by another
 * communicator. */
static int wait_turn(struct kolo_comm *c, uint64_t place)
{
	int rc = 0;

	while (rc == 0 && !ko_order_wait(c->order, place))
		rc = ko_roster_cause(c->roster);
	return rc;
}

/* A queue has come to it. */
static int perform_in_turn(void *arg)
{
	const struct work *w = arg;
	struct kolo_comm *c = w->args.comm;
	int rc = wait_turn(c, w->place);

	if (rc == 0)
		rc = perform(&w->args, &w->red);
	ko_order_serve(c->order);
	return rc;
}

static int enqueue(const struct args *a)
{
	struct ko_order *order = a->comm->order;
	const struct work w = { *a, reducer_of(a), order->issued + 1 };
	int rc = ko_queue_put(a->queue, perform_in_turn, &w, sizeof(w));

	if (rc == 0)
		order->issued++;
	return rc;
}

static int call(const struct args *a)
{
	int rc = check_args(a, ko_coll_name(a->coll));

	if (rc < 0)
		return rc;
	if (a->queue)
		return enqueue(a);
	if (!ko_order_is_settled(a->comm->order))
		rc = wait_turn(a->comm, a->comm->order->issued + 1);
	return rc < 0 ? rc : perform(a, NULL);
}

/* ---- The collectives ------------------------------------------------------------------------------------ */

int kolo_all_reduce(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		    enum kolo_op op, struct kolo_queue *queue)
{
	const struct args a = { comm, KO_ALL_REDUCE, src, dst, n, type, op, -1, queue };

	return call(&a);
}

int kolo_reduce_scatter(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
			enum kolo_op op, struct kolo_queue *queue)
{
	const struct args a = { comm, KO_REDUCE_SCATTER, src, dst, n, type, op, -1, queue };

	return call(&a);
}

int kolo_all_gather(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		    struct kolo_queue *queue)
{
	const struct args a = { comm, KO_ALL_GATHER, src, dst, n, type, KOLO_SUM, -1, queue };

	return call(&a);
}

int kolo_broadcast(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		   int root, struct kolo_queue *queue)
{
	const struct args a = { comm, KO_BROADCAST, src, dst, n, type, KOLO_SUM, root, queue };

	return call(&a);
}

int kolo_reduce(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		enum kolo_op op, int root, struct kolo_queue *queue)
{
	const struct args a = { comm, KO_REDUCE, src, dst, n, type, op, root, queue };

	return call(&a);
}

int kolo_barrier(struct kolo_comm *comm, struct kolo_queue *queue)
{
	const struct args a = { comm, KO_BARRIER, NULL, NULL, 0, KOLO_U8, KOLO_SUM, -1, queue };

	return call(&a);
}
