/* One round of each collective round the ring (ko_rounds): first step, middle steps, last step. */
#include "comm/coll/rounds.h"

/* The round's slice of the block that this rank handles `step` steps after its own. Data moves up
 * the ring. So it is the block of the rank `step` steps before. */
static struct ko_piece piece(const struct ko_run *run, int step, size_t round)
{
	return ko_plan_piece(&run->plan, ko_ring_back(&run->comm->ring, run->comm->rank, step),
			     round);
}

/* Elements of the vector before this rank's block. */
static size_t own_first(const struct ko_run *run)
{
	return ko_plan_block(&run->plan, run->comm->rank).first;
}

/* Slices that a rank sends in a round. */
struct sent {
	size_t first, end;
};

/* One of two ranks sends some slices before it takes the first one: if slots lie in memory that
 * both share, that is faster (why: D201 in comm/DECISIONS.md). With more ranks, slices of others go
 * between its own. */
static struct sent sent_in(const struct ko_run *run, size_t round)
{
	enum { AHEAD = 2 };
	const struct kolo_comm *c = run->comm;
	bool may = c->nranks == 2 && run->moves == &ko_moves_now && c->edges.to->ops->settle;
	size_t ahead = may ? ko_min_size(AHEAD, c->agreed.limits.nslots - 1) : 0;

	return (struct sent){ round ? round + ahead : 0,
			      ko_min_size(round + ahead + 1, run->plan.rounds) };
}

/* Every step of a reduce-scatter except the last: this rank adds to blocks of others. */
static int add_to_others(struct ko_run *run, size_t round, const void *src)
{
	struct ko_piece q = piece(run, 1, round);
	int rc = run->moves->send(run, run->red.first, ko_at(run, src, q.first), NULL, q.n);

	for (int step = 2; rc == 0 && step < run->comm->nranks; step++) {
		q = piece(run, step, round);
		rc = run->moves->add_and_pass(run, ko_at(run, src, q.first), q.n);
	}
	return rc;
}

/* Every step of an all-gather except the first: this rank keeps blocks of others. */
static int keep_others(struct ko_run *run, size_t round, void *dst)
{
	struct ko_piece q;
	int rc = 0, last = run->comm->nranks - 1;

	for (int step = 1; rc == 0 && step < last; step++) {
		q = piece(run, step, round);
		rc = run->moves->keep_and_pass(run, ko_at_mut(run, dst, q.first), q.n);
	}
	if (rc < 0)
		return rc;
	q = piece(run, last, round);
	return run->moves->keep(run, ko_at_mut(run, dst, q.first), q.n);
}

/* dst has only this rank's block: its element i is element own_first + i of the vector. */
static int reduce_scatter_round(struct ko_run *run, size_t round, const void *src, void *dst)
{
	struct ko_piece q = piece(run, 0, round);
	struct sent sent = sent_in(run, round);
	int rc = 0;

	for (size_t k = sent.first; rc == 0 && k < sent.end; k++)
		rc = add_to_others(run, k, src);
	if (rc < 0)
		return rc;
	return run->moves->add_and_keep(run, ko_at(run, src, q.first),
					ko_at_mut(run, dst, q.first - own_first(run)), q.n);
}

static int give_own(struct ko_run *run, size_t round, const void *src, void *dst)
{
	struct ko_piece q = piece(run, 0, round);
	const void *own = ko_at(run, src, q.first - own_first(run));
	void *to = ko_at_mut(run, dst, q.first);
	int rc = run->moves->send(run, run->copy, own, to, q.n);

	return rc < 0 ? rc : run->moves->keep_own(run, to, own, q.n);
}

/* src has only this rank's block. */
static int all_gather_round(struct ko_run *run, size_t round, const void *src, void *dst)
{
	struct sent sent = sent_in(run, round);
	int rc = 0;

	for (size_t k = sent.first; rc == 0 && k < sent.end; k++)
		rc = give_own(run, k, src, dst);
	return rc < 0 ? rc : keep_others(run, round, dst);
}

/* A round of reduce-scatter, then a round of all-gather. So a piece is still in cache when it comes
 * back finished. */
static int all_reduce_round(struct ko_run *run, size_t round, const void *src, void *dst)
{
	struct ko_piece q = piece(run, 0, round);
	int rc = add_to_others(run, round, src);

	if (rc == 0)
		rc = run->moves->add_keep_and_pass(run, ko_at(run, src, q.first),
						   ko_at_mut(run, dst, q.first), q.n);
	return rc < 0 ? rc : keep_others(run, round, dst);
}

/* A chain from root to the rank before it. */
static int broadcast_round(struct ko_run *run, size_t round, const void *src, void *dst)
{
	int distance = ko_ring_distance(&run->comm->ring, run->desc.root, run->comm->rank);
	struct ko_piece q = ko_plan_piece(&run->plan, 0, round);
	void *to = ko_at_mut(run, dst, q.first);
	int rc;

	if (distance == run->comm->nranks - 1)
		return run->moves->keep(run, to, q.n);
	if (distance > 0)
		return run->moves->keep_and_pass(run, to, q.n);
	rc = run->moves->send(run, run->copy, ko_at(run, src, q.first), to, q.n);
	if (rc == 0)
		rc = run->moves->keep_own(run, to, ko_at(run, src, q.first), q.n);
	return rc;
}

/* A chain from the rank after root to root. */
static int reduce_round(struct ko_run *run, size_t round, const void *src, void *dst)
{
	int distance = ko_ring_distance(&run->comm->ring, run->desc.root, run->comm->rank);
	struct ko_piece q = ko_plan_piece(&run->plan, 0, round);
	const void *own = ko_at(run, src, q.first);

	if (distance == 1)
		return run->moves->send(run, run->red.first, own, NULL, q.n);
	if (distance > 1)
		return run->moves->add_and_pass(run, own, q.n);
	return run->moves->add_and_keep(run, own, ko_at_mut(run, dst, q.first), q.n);
}

/* A barrier is a reduce-scatter of nothing. After its nranks - 1 steps, a slot from each rank has
 * come here, by way of the ranks between. */
ko_round_fn *const ko_rounds[KO_NCOLLS] = {
	[KO_BARRIER] = reduce_scatter_round,
	[KO_BROADCAST] = broadcast_round,
	[KO_REDUCE] = reduce_round,
	[KO_ALL_REDUCE] = all_reduce_round,
	[KO_REDUCE_SCATTER] = reduce_scatter_round,
	[KO_ALL_GATHER] = all_gather_round,
};
