/* The algorithm "direct" (ko_direct_ops): the ranks report where their buffers are and agree on a
 * way; then each reads and writes the others' buffers. */
#include "comm/coll/direct.h"

#include "comm/coll/tree.h"
#include "comm/core/learn.h"
#include "comm/memory/board.h"
#include "comm/memory/cma.h"
#include "comm/memory/turns.h"
#include "comm/memory/window.h"

enum {
	LARGE_CHUNK = KO_SCRATCH / 2, /* bytes added up at a time in plain memory */
	SMALL_CHUNK = 16 << 10,       /* in windows: copied while it is in the first-level cache */
	/* Bytes from which on ranks share a broadcast in place, or a reduce. Below, one side alone
	 * is faster */
	BROADCAST_SHARED = 32 << 10,
	REDUCE_SHARED = 256 << 10
};

/* What a rank reports in its cell. */
struct offer {
	struct ko_where src, dst;
	uint16_t in_place; /* 1: the operation is in place on this rank */
	uint16_t hidden;   /* 1: others would need plain memory of this rank, and cannot reach it */
	/* Bit 0: an operation out of place reads plain memory. Bit 1: an operation in place does.
	 * Otherwise another algorithm does it. The decider's bits count (learn.h) */
	uint32_t read;
};

_Static_assert(sizeof(struct offer) <= sizeof(((struct ko_cell *)0)->small),
	       "an offer comes with its turn");

/* An operation under way. */
struct direct {
	struct ko_run *run;
	const char *src;
	char *dst;
	uint64_t turn; /* in which the offers were made */
};

/* Bytes of n elements. */
static size_t bytes_of(const struct direct *d, size_t n)
{
	return n * d->run->size;
}

/* ---- Offers ---------------------------------------------------------------------------------- */

static const struct offer *offer_of(const struct direct *d, int rank)
{
	return (const void *)ko_board_cell(d->run->comm->board, d->turn, rank)->small;
}

/* Would others need memory of this rank that they cannot reach? */
static bool is_hidden(const struct direct *d, size_t src_len, size_t dst_len)
{
	struct kolo_comm *c = d->run->comm;
	enum ko_coll coll = (enum ko_coll)d->run->desc.coll;
	bool gives = coll != KO_BROADCAST || c->rank == d->run->desc.root;
	bool is_reached = coll == KO_ALL_REDUCE || !gives ||
			  (coll == KO_REDUCE && c->rank == d->run->desc.root);

	return (gives && !ko_cma_offers(c, d->src, src_len)) ||
	       (is_reached && !ko_cma_offers(c, d->dst, dst_len));
}

/* Reports where this rank's buffers are. The decider also reports whether to read plain memory. */
static int make_offer(const struct direct *d)
{
	struct ko_run *run = d->run;
	const struct kolo_comm *c = run->comm;
	enum ko_coll coll = (enum ko_coll)run->desc.coll;
	const struct ko_plan *p = &run->plan;
	size_t own =
		ko_plan_block(p, coll == KO_ALL_GATHER || coll == KO_REDUCE_SCATTER ? c->rank : 0)
			.n;
	size_t src_n = coll == KO_ALL_GATHER ? own : p->count;
	size_t dst_n = coll == KO_REDUCE_SCATTER ? own : p->count;
	struct offer mine = { ko_window_find(c, d->src, bytes_of(d, src_n)),
			      ko_window_find(c, d->dst, bytes_of(d, dst_n)), run->in_place, 0, 0 };

	if (run->may_read && !c->agreed.algorithms.must_read)
		mine.hidden = is_hidden(d, bytes_of(d, src_n), bytes_of(d, dst_n));
	if (run->may_read && c->rank == run->decider)
		mine.read =
			c->agreed.algorithms.must_read
				? 3
				: ko_learn_to_read(run, false) + 2 * ko_learn_to_read(run, true);
	return ko_turn_give(run, &mine, sizeof(mine), NULL, 0);
}

/* Does all that others need of `rank` lie in a window? */
static bool in_window(const struct direct *d, int rank)
{
	const struct offer *offer = offer_of(d, rank);
	enum ko_coll coll = (enum ko_coll)d->run->desc.coll;
	bool is_root = rank == d->run->desc.root;
	bool gives = coll != KO_BROADCAST || is_root;
	bool takes = coll != KO_REDUCE_SCATTER && (coll != KO_REDUCE || is_root);

	return (!gives || offer->src.window) && (!takes || offer->dst.window);
}

/* Root of a broadcast in place has nothing else to do. Nor have the ranks that only give to a
 * reduce. */
static bool is_shared(const struct ko_run *run)
{
	size_t bytes = run->plan.count * run->size;

	if (run->desc.coll == KO_REDUCE)
		return bytes >= REDUCE_SHARED;
	return run->desc.coll == KO_BROADCAST && run->giver_in_place && bytes >= BROADCAST_SHARED;
}

/* Bytes that go to some dst, and not into the caches. Ranks write to others' dst too. Nobody has
 * read it, except in a reduction in place. */
static size_t written_in_windows(const struct ko_run *run)
{
	size_t all = run->plan.count * run->size;

	switch ((enum ko_coll)run->desc.coll) {
	case KO_REDUCE: return run->giver_in_place ? 0 : all;
	case KO_BROADCAST: return all;
	default: return run->written;
	}
}

/* Puts into the run what follows from the offers: the same on all ranks. */
static void choose(const struct direct *d)
{
	struct ko_run *run = d->run;
	int giver = run->desc.coll == KO_BROADCAST ? run->desc.root : run->decider;
	bool all = true, hidden = false;

	run->giver_in_place = offer_of(d, giver)->in_place;
	for (int r = 0; r < run->comm->nranks; r++) {
		all = all && in_window(d, r);
		hidden = hidden || offer_of(d, r)->hidden;
	}
	if (all)
		run->way = KO_BY_WINDOW;
	else if (!hidden && (offer_of(d, run->decider)->read >> run->giver_in_place & 1))
		run->way = KO_BY_CMA;
	run->shared = run->way == KO_BY_CMA && is_shared(run);
	if (run->way == KO_BY_WINDOW)
		run->written = written_in_windows(run);
	else if (run->may_read && run->comm->rank == run->decider)
		run->reading = &run->readings[run->giver_in_place];
}

/* ---- Others' memory -------------------------------------------------------------------------- */

/* n elements of a buffer of `rank`, from `first` on. Returns where they are, or a copy in `room`.
 * On an error it returns NULL and sets *rc. */
static const char *view(const struct direct *d, int rank, struct ko_where where, size_t first,
			size_t n, char *room, int *rc)
{
	struct kolo_comm *c = d->run->comm;
	const char *mapped = ko_window_at(c, rank, where);

	c->counters.direct.received += bytes_of(d, n);
	if (mapped)
		return mapped + bytes_of(d, first);
	*rc = ko_cma_read(c, rank, where.at + bytes_of(d, first), room, bytes_of(d, n));
	return *rc < 0 ? NULL : room;
}

static void put(const struct direct *d, char *to, const char *from, size_t n)
{
	if (n == 0)
		return;
	if (d->run->stores == KO_STREAMING && to != from)
		ko_stream_copy(to, from, bytes_of(d, n));
	else
		d->run->copy(to, from, n, &d->run->red.s);
}

/* to = n elements of a buffer of `rank`, from `first` on. */
static int get(const struct direct *d, int rank, struct ko_where where, size_t first, char *to,
	       size_t n)
{
	int rc = 0;
	const char *from = view(d, rank, where, first, n, to, &rc);

	if (from)
		put(d, to, from, n);
	return rc;
}

/* dst of `rank`; NULL if only the system can write it. */
static char *dst_of(const struct direct *d, int rank)
{
	struct kolo_comm *c = d->run->comm;

	return rank == c->rank ? d->dst : ko_window_at(c, rank, offer_of(d, rank)->dst);
}

/* n elements of dst of `rank`, from `first` on, = from. */
static int give(const struct direct *d, int rank, size_t first, const char *from, size_t n)
{
	char *dst = dst_of(d, rank);

	if (!dst)
		return ko_cma_write(d->run->comm, rank,
				    offer_of(d, rank)->dst.at + bytes_of(d, first), from,
				    bytes_of(d, n));
	put(d, dst + bytes_of(d, first), from, n);
	return 0;
}

/* ---- Adding up ------------------------------------------------------------------------------- */

/* What the loops need for elements of `rank`. */
static const union ko_scalar *scalar_of(const struct direct *d, int rank)
{
	const struct kolo_comm *c = d->run->comm;

	return ko_run_scalar(d->run, &ko_board_cell(c->board, d->turn, rank)->scalar);
}

/* acc = the sum of elements [first, first + n) of all ranks, in the order of a block that belongs
 * to `owner`. acc may be the owner's own elements. */
static int add_chunk(const struct direct *d, int owner, size_t first, size_t n, char *acc,
		     bool mine)
{
	const struct ko_reducer *red = &d->run->red;
	const struct kolo_comm *c = d->run->comm;
	/* Partial sums must not overwrite own elements that are not added yet. In others' memory
	 * only results are written. */
	char *partial_room = mine && acc != d->src + bytes_of(d, first) ? acc : c->scratch;
	const char *partial = NULL;
	int nranks = c->nranks, rc = 0;

	for (int k = 1; k <= nranks; k++) {
		int r = (owner + k) % nranks;
		const union ko_scalar *s = scalar_of(d, r);
		char *room = k == 1 ? partial_room : c->scratch + LARGE_CHUNK;
		char *sum = k == nranks ? acc : partial_room;
		const char *own = r == c->rank
					  ? d->src + bytes_of(d, first)
					  : view(d, r, offer_of(d, r)->src, first, n, room, &rc);

		if (rc < 0)
			return rc;
		if (k > 1)
			red->combine(sum, partial, own, n, s);
		else if (red->first != d->run->copy)
			red->first(sum, own, n, s);
		partial = k == 1 && red->first == d->run->copy ? own : sum;
	}
	red->finish(acc, acc, n, &red->s);
	return 0;
}

/* The same in the order of the tree; partial sums lie behind the n elements of scratch that acc may
 * be. */
static int add_chunk_as_tree(const struct direct *d, size_t first, size_t n, char *acc)
{
	const struct kolo_comm *c = d->run->comm;
	struct ko_tree t = ko_tree_begin(d->run, n, c->scratch + bytes_of(d, n), acc);
	int rc = 0;

	for (int r = 0; r < c->nranks; r++) {
		const char *value = r == c->rank ? d->src + bytes_of(d, first)
						 : view(d, r, offer_of(d, r)->src, first, n,
							ko_tree_room(&t), &rc);

		if (rc < 0)
			return rc;
		ko_tree_add(&t, value, scalar_of(d, r));
	}
	return 0;
}

/* Elements that are added up at a time. */
static size_t chunk_of(const struct direct *d)
{
	const struct ko_run *run = d->run;
	size_t most = KO_SCRATCH / (size_t)(ko_tree_height(run->comm->nranks) + 1);
	size_t len = run->way == KO_BY_CMA         ? LARGE_CHUNK
		     : run->stores == KO_STREAMING ? KO_STREAM_STEP
						   : SMALL_CHUNK;

	return (run->comm->sums == KO_SUMS_TREE ? ko_min_size(len, most) : len) / run->size;
}

/* Adds up elements q of all ranks, in the order of a block of `owner`. The result goes to dst of
 * `ranks` ranks, from rank `from` on and round, to element `to` and on. */
static int add_up(const struct direct *d, int owner, struct ko_piece q, int from, int ranks,
		  size_t to)
{
	struct kolo_comm *c = d->run->comm;
	bool stream = d->run->stores == KO_STREAMING;
	size_t chunk = chunk_of(d);
	char *dst = stream ? NULL : dst_of(d, from);
	int rc = 0;

	for (size_t at = 0; rc == 0 && at < q.n; at += chunk) {
		size_t n = ko_min_size(chunk, q.n - at);
		char *acc = dst ? dst + bytes_of(d, to + at) : c->scratch;

		rc = c->sums == KO_SUMS_TREE
			     ? add_chunk_as_tree(d, q.first + at, n, acc)
			     : add_chunk(d, owner, q.first + at, n, acc, !dst || from == c->rank);
		for (int k = dst ? 1 : 0; rc == 0 && k < ranks; k++)
			rc = give(d, (from + k) % c->nranks, to + at, acc, n);
	}
	c->counters.direct.sent += bytes_of(d, q.n) * (size_t)(ranks - (from == c->rank));
	return rc;
}

/* ---- The collectives ------------------------------------------------------------------------- */

/* Waits until every rank has come here. */
static int sync(struct ko_run *run)
{
	int rc = ko_turn_give(run, NULL, 0, NULL, 0);

	if (rc == 0)
		rc = ko_turn_wait_all(run);
	ko_turn_end(run);
	return rc;
}

/* Waits until `rank` has done its part of the operation. */
static int wait_finished(const struct direct *d, int rank)
{
	const struct ko_waiter waiter = ko_run_waiter(d->run);

	return ko_turn_wait_finished(&waiter, rank);
}

/* This rank's block goes to all. In place nobody else reads there. */
static int all_reduce(const struct direct *d)
{
	int rank = d->run->comm->rank, nranks = d->run->comm->nranks;
	struct ko_piece q = ko_plan_block(&d->run->plan, rank);

	return add_up(d, rank, q, rank, nranks, q.first);
}

static int reduce_scatter(const struct direct *d)
{
	int rank = d->run->comm->rank;

	return add_up(d, rank, ko_plan_block(&d->run->plan, rank), rank, 1, 0);
}

/* Writes n elements to dst of all ranks, from element `to` on. */
static void spread(const struct direct *d, const char *from, size_t n, size_t to)
{
	struct kolo_comm *c = d->run->comm;
	size_t chunk = SMALL_CHUNK / d->run->size;

	for (size_t at = 0; at < n; at += chunk) {
		for (int k = 0; k < c->nranks; k++) {
			char *dst = dst_of(d, (c->rank + k) % c->nranks) + bytes_of(d, to + at);
			size_t m = ko_min_size(chunk, n - at);

			put(d, dst, from + bytes_of(d, at), m);
			c->counters.direct.sent +=
				k > 0 && dst != from + bytes_of(d, at) ? bytes_of(d, m) : 0;
		}
	}
}

static int all_gather(const struct direct *d)
{
	int rank = d->run->comm->rank, nranks = d->run->comm->nranks, rc = 0;
	struct ko_piece q = ko_plan_block(&d->run->plan, rank);

	if (d->run->way == KO_BY_WINDOW) {
		spread(d, d->src, q.n, q.first);
		return 0;
	}
	put(d, d->dst + bytes_of(d, q.first), d->src, q.n);
	for (int k = 1; rc == 0 && k < nranks; k++) {
		int r = ko_ring_back(&d->run->comm->ring, rank, k);

		q = ko_plan_block(&d->run->plan, r);
		rc = get(d, r, offer_of(d, r)->src, 0, d->dst + bytes_of(d, q.first), q.n);
	}
	return rc;
}

/* Each rank makes a share of the vector for root, or root makes all of it. */
static int reduce(const struct direct *d)
{
	int rank = d->run->comm->rank, nranks = d->run->comm->nranks, root = d->run->desc.root;
	struct ko_piece q = ko_plan_share(&d->run->plan, rank, nranks);

	if (d->run->way == KO_BY_WINDOW || d->run->shared) {
		int rc = add_up(d, root, q, root, 1, q.first);

		return rc < 0 ? rc : sync(d->run);
	}
	if (rank != root)
		return wait_finished(d, root);
	return add_up(d, root, ko_plan_block(&d->run->plan, 0), root, 1, 0);
}

static int broadcast(const struct direct *d)
{
	struct kolo_comm *c = d->run->comm;
	size_t n = d->run->plan.count, given = d->run->shared ? n / (size_t)c->nranks : 0;
	int root = d->run->desc.root, rc = 0;

	if (d->run->way == KO_BY_WINDOW) {
		struct ko_piece q = ko_plan_share(&d->run->plan, c->rank, c->nranks);
		const char *from = d->src + bytes_of(d, q.first);

		if (c->rank != root)
			from = view(d, root, offer_of(d, root)->src, q.first, q.n, NULL, &rc);
		spread(d, from, q.n, q.first);
		return sync(d->run);
	}
	if (c->rank != root)
		rc = get(d, root, offer_of(d, root)->src, given, d->dst + bytes_of(d, given),
			 n - given);
	else
		put(d, d->dst, d->src, n);
	for (int k = 1; rc == 0 && c->rank == root && k < c->nranks; k++) {
		int r = (root + k) % c->nranks;

		rc = given ? give(d, r, 0, d->src, given) : wait_finished(d, r);
		c->counters.direct.sent += bytes_of(d, given);
	}
	return given && rc == 0 ? sync(d->run) : rc;
}

/* ---- When ------------------------------------------------------------------------------------ */

/* A barrier has no buffers. */
static uint64_t end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows)
{
	(void)nranks;
	return coll != KO_BARRIER && (windows || costs->read_bytes_per_ns > 0) ? UINT64_MAX : 0;
}

/* Turns, and bytes that are read or written, as a share of the vector, until the last rank has its
 * result. In plain memory each piece costs a call of the system. If all ranks read or write each
 * other's plain memory at a time, their calls hold each other up in the system. The turns count
 * that too: they are what was left of measured times (D212 in comm/DECISIONS.md). */
static struct ko_estimate cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
			       bool windows)
{
	double n = nranks, turns = 2, crossings, calls = n - 1, share = costs->share;

	switch (coll) {
	case KO_ALL_REDUCE:
		turns = windows ? 2 : 11;
		crossings = 2 * (n - 1) / n;
		calls = 2 * (n - 1);
		break;
	case KO_REDUCE_SCATTER:
	case KO_ALL_GATHER:
		turns = windows ? 2 : coll == KO_ALL_GATHER ? 5 : 4;
		crossings = (n - 1) / n;
		break;
	case KO_BROADCAST:
		crossings = 1;
		calls = 1;
		break;
	default: /* of reduce: in plain memory root reads alone */
		crossings = windows ? 1 : n - 1;
		share = 1;
		break;
	}
	if (windows)
		return (struct ko_estimate){ turns * costs->turn_ns,
					     crossings / costs->bytes_per_ns };
	return (struct ko_estimate){ turns * costs->turn_ns + share * calls * costs->read_ns,
				     share * crossings / costs->read_bytes_per_ns };
}

static bool takes(const struct ko_run *run)
{
	(void)run;
	return true;
}

/* In a turn of their own all ranks report where their buffers are. */
static int agree(struct ko_run *run, const void *src, void *dst)
{
	struct direct d = {
		.run = run, .src = src, .dst = dst, .turn = run->comm->board->turn.number
	};
	int rc = make_offer(&d);

	if (rc == 0)
		rc = ko_turn_wait_all(run);
	if (rc == 0)
		choose(&d);
	ko_turn_end(run);
	return rc < 0 ? rc : run->way != KO_NO_WAY;
}

/* The offers are those of the turn before this one, in which the ranks agreed. */
static int perform(struct ko_run *run, const void *src, void *dst)
{
	struct direct d = {
		.run = run, .src = src, .dst = dst, .turn = run->comm->board->turn.number - 1
	};
	int rc;

	ko_learn_stores(run);
	switch ((enum ko_coll)run->desc.coll) {
	case KO_ALL_REDUCE: rc = all_reduce(&d); break;
	case KO_REDUCE_SCATTER: rc = reduce_scatter(&d); break;
	case KO_ALL_GATHER: rc = all_gather(&d); break;
	case KO_REDUCE: return reduce(&d);
	default: return broadcast(&d);
	}
	return rc < 0 ? rc : sync(run);
}

struct ko_model ko_direct_model(const struct ko_plan *p, enum ko_coll coll, int rank, int nranks,
				int root, struct ko_direct_way way)
{
	size_t others = (size_t)nranks - 1, own = ko_plan_block(p, rank).n, all = p->count;
	bool has_root = coll == KO_BROADCAST || coll == KO_REDUCE;
	size_t share = has_root ? ko_plan_share(p, rank, nranks).n : 0,
	       given = way.shared ? all / (size_t)nranks : 0;

	switch (coll) {
	case KO_REDUCE_SCATTER: return (struct ko_model){ 0, others * own };
	case KO_ALL_GATHER:
		return way.windows ? (struct ko_model){ others * own, 0 }
				   : (struct ko_model){ 0, all - own };
	case KO_ALL_REDUCE: return (struct ko_model){ others * own, others * own };
	case KO_BROADCAST: /* in place root's dst has it */
		if (!way.windows)
			return rank == root ? (struct ko_model){ others * given, 0 }
					    : (struct ko_model){ 0, all - given };
		return (struct ko_model){ (others - (way.in_place && rank != root)) * share,
					  rank == root ? 0 : share };
	case KO_REDUCE:
		if (!way.windows && !way.shared)
			return (struct ko_model){ 0, rank == root ? others * all : 0 };
		return (struct ko_model){ rank == root ? 0 : share, others * share };
	default: return (struct ko_model){ 0, 0 };
	}
}

static struct ko_model model(const struct ko_run *run)
{
	const struct kolo_comm *c = run->comm;
	const struct ko_direct_way way = { .windows = run->way == KO_BY_WINDOW,
					   .in_place = run->giver_in_place,
					   .shared = run->shared };

	return ko_direct_model(&run->plan, (enum ko_coll)run->desc.coll, c->rank, c->nranks,
			       run->desc.root, way);
}

const struct ko_algorithm_ops ko_direct_ops = {
	.name = "direct",
	.what = "each rank reads and writes the others' buffers where they are",
	.sums = 1 << KO_SUMS_RING | 1 << KO_SUMS_TREE,
	.reach = KO_SHARED_MEMORY,
	.end = end,
	.cost = cost,
	.takes = takes,
	.agree = agree,
	.run = perform,
	.model = model,
};
