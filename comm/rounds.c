/* See rounds.h. A round is first step, middle steps, last step. */
#include "rounds.h"

/* The round's slice of the block that this rank handles `step` steps after its own. */
static struct ko_piece piece(const struct ko_run *run, int step, size_t round)
{
	return ko_plan_piece(&run->plan, ko_ring_block(run->comm->rank, run->comm->nranks, step), round);
}

static const void *at(const struct ko_run *run, const void *base, size_t element)
{
	return base ? (const char *)base + element * run->size : NULL;
}

static void *at_mut(const struct ko_run *run, void *base, size_t element)
{
	return base ? (char *)base + element * run->size : NULL;
}

/* What this rank gave belongs into its own dst too; in place it is there already. */
static void keep_own(const struct ko_run *run, void *dst, const void *src, size_t n)
{
	if (n)
		run->copy(dst, src, n, NULL);
}

/* Elements before this rank's block. */
static size_t own_first(const struct ko_run *run)
{
	return ko_plan_block(&run->plan, run->comm->rank).first;
}

/* dst is this rank's block only: element i of it is element own_first + i of the vector. */
int ko_reduce_scatter_round(struct ko_run *run, size_t round, const void *src, void *dst)
{
	struct ko_piece q = piece(run, 1, round);
	int rc = ko_send(run, run->red.first, at(run, src, q.first), q.n);

	for (int step = 2; rc == 0 && step < run->comm->nranks; step++) {
		q = piece(run, step, round);
		rc = ko_add_and_pass(run, at(run, src, q.first), q.n);
	}
	if (rc < 0)
		return rc;
	q = piece(run, 0, round);
	return ko_add_and_keep(run, at(run, src, q.first), at_mut(run, dst, q.first - own_first(run)), q.n);
}

/* src is this rank's block only. */
int ko_all_gather_round(struct ko_run *run, size_t round, const void *src, void *dst)
{
	struct ko_piece q = piece(run, 0, round);
	const void *own = at(run, src, q.first - own_first(run));
	int rc = ko_send(run, run->copy, own, q.n);

	if (rc == 0)
		keep_own(run, at_mut(run, dst, q.first), own, q.n);
	for (int step = 1; rc == 0 && step < run->comm->nranks - 1; step++) {
		q = piece(run, step, round);
		rc = ko_keep_and_pass(run, at_mut(run, dst, q.first), q.n);
	}
	if (rc < 0)
		return rc;
	q = piece(run, run->comm->nranks - 1, round);
	return ko_keep(run, at_mut(run, dst, q.first), q.n);
}

/* Reduce-scatter, then all-gather, a round of each at a time, so that a piece is still in cache when it comes back
 * finished. In between my block lies in its place in dst. */
int ko_all_reduce_round(struct ko_run *run, size_t round, const void *src, void *dst)
{
	void *own = at_mut(run, dst, own_first(run));
	int rc = ko_reduce_scatter_round(run, round, src, own);

	return rc < 0 ? rc : ko_all_gather_round(run, round, own, dst);
}

/* A chain from root to the rank before it. */
int ko_broadcast_round(struct ko_run *run, size_t round, const void *src, void *dst)
{
	int distance = ko_ring_block(run->comm->rank, run->comm->nranks, run->desc.root);
	struct ko_piece q = ko_plan_piece(&run->plan, 0, round);
	void *to = at_mut(run, dst, q.first);
	int rc;

	if (distance == run->comm->nranks - 1)
		return ko_keep(run, to, q.n);
	if (distance > 0)
		return ko_keep_and_pass(run, to, q.n);
	rc = ko_send(run, run->copy, at(run, src, q.first), q.n);
	if (rc == 0)
		keep_own(run, to, at(run, src, q.first), q.n);
	return rc;
}

/* A chain from the rank after root to root. */
int ko_reduce_round(struct ko_run *run, size_t round, const void *src, void *dst)
{
	int distance = ko_ring_block(run->comm->rank, run->comm->nranks, run->desc.root);
	struct ko_piece q = ko_plan_piece(&run->plan, 0, round);
	const void *own = at(run, src, q.first);

	if (distance == 1)
		return ko_send(run, run->red.first, own, q.n);
	if (distance > 1)
		return ko_add_and_pass(run, own, q.n);
	return ko_add_and_keep(run, own, at_mut(run, dst, q.first), q.n);
}
