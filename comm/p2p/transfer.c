/* The loop over all lanes with something to do (ko_transfers_do), and messages of a rank to
 * itself. */
#include "comm/p2p/transfer.h"

#include "comm/core/learn.h"
#include "comm/core/wait.h"

#include <stdlib.h>
#include <string.h>

/* Advances each lane with something to do. Lanes that have nothing left leave the list. KO_EAGAIN:
 * nothing has moved. */
static int step_all(struct ko_run *run, bool may_help)
{
	struct ko_lanes *lanes = run->comm->lanes;
	struct ko_lane_end **link = &lanes->busy;
	int moved = KO_EAGAIN;

	while (*link) {
		struct ko_lane_end *end = *link;
		int rc = lanes->ops->advance(run, end, may_help);

		if (rc < 0)
			return rc;
		if (rc == 0)
			moved = 0;
		if (end->first)
			link = &end->busy;
		else
			*link = end->busy;
	}
	return moved;
}

/* A rank helps to copy rendezvous messages (may_help) only if it has nothing else to do. If all
 * ranks send to all, system calls that read and that write memory of the same process hold each
 * other up. */
static int try_all(void *what)
{
	struct ko_run *run = what;
	int rc = step_all(run, false), heard = 0;

	if (rc == KO_EAGAIN && !run->comm->spread)
		rc = step_all(run, true);
	if (rc >= 0 && run->comm->while_waiting)
		heard = run->comm->while_waiting(run->comm);
	if (rc < 0 || heard < 0)
		return rc < 0 ? rc : heard;
	if (rc == 0)
		ko_bells_ring(run->comm->bells, run->comm->rank, run->comm->nranks);
	return rc;
}

static int put_in_lane(struct ko_run *run, struct ko_transfer *t)
{
	struct kolo_comm *c = run->comm;
	struct ko_lane_end *end;
	int rc = ko_lane_find(c, t->peer, t->sends, &end);

	if (rc < 0)
		return rc;
	/* Prefetches the slot, and not the line: the receiver may be reading that. */
	if (end->lane && t->sends && !end->first && t->bytes > KO_LANE_SMALL &&
	    ko_expects_one_way(t->bytes))
		ko_expect_to_write(ko_lane_slot(end), t->bytes);
	if (end->first) {
		end->last->next = t;
	} else {
		end->first = end->unposted = t;
		end->busy = c->lanes->busy;
		c->lanes->busy = end;
	}
	end->last = t;
	return 0;
}

/* The next transfer from `t` on that sends to this rank itself, or receives from it. */
static struct ko_transfer *next_own(const struct ko_run *run, struct ko_transfer *t,
				    const struct ko_transfer *end, bool sends)
{
	while (t < end && (t->peer != run->comm->rank || t->sends != sends))
		t++;
	return t;
}

/* Copies a message of this rank to itself. In a group the two buffers may overlap. */
static void copy_part(const struct ko_run *run, char *dst, const char *src, size_t len)
{
	bool overlap = dst < src + len && src < dst + len;

	if (overlap)
		memmove(dst, src, len);
	else
		ko_run_copy(run, dst, src, len);
}

/* Copies messages of this rank to itself: the first send is for the first recv, and so on. */
static int copy_own(struct ko_run *run, struct ko_transfer *all, size_t count)
{
	struct ko_transfer *end = all + count;
	struct ko_transfer *from = next_own(run, all, end, true),
			   *to = next_own(run, all, end, false);
	struct kolo_comm *c = run->comm;

	while (from < end && to < end) {
		if (from->n != to->n || from->type != to->type)
			return ko_fail(KOLO_EMISMATCH,
				       "rank %d sends n=%zu %s to itself, and waits for n=%zu %s",
				       c->rank, from->n, kolo_type_name(from->type), to->n,
				       kolo_type_name(to->type));
		if (to->bytes && to->buffer != from->buffer)
			copy_part(run, to->buffer, from->buffer, to->bytes);
		from = next_own(run, from + 1, end, true);
		to = next_own(run, to + 1, end, false);
	}
	if (from < end || to < end)
		return ko_fail(KOLO_EMISMATCH,
			       "rank %d: a group has a %s itself without the other end", c->rank,
			       from < end ? "send to" : "recv from");
	return 0;
}

bool ko_transfers_need(const struct kolo_comm *c, int rank)
{
	const struct ko_lanes *lanes = c->lanes;

	return lanes->ends && (lanes->ends[rank].first || lanes->ends[c->nranks + rank].first);
}

/* Chooses between rendezvous and slots, and the stores. */
static void decide(struct ko_run *run, const struct ko_transfer *all, size_t count)
{
	struct kolo_comm *c = run->comm;
	size_t large = 0, sent = 0, received = 0;

	for (size_t k = 0; k < count; k++) {
		const struct ko_transfer *t = &all[k];

		*(t->sends ? &sent : &received) += t->bytes;
		if (t->sends && t->peer != c->rank && t->bytes >= c->agreed.algorithms.rndv_begin &&
		    !ko_window_find(c, t->buffer, t->bytes).window)
			large += t->bytes;
	}
	run->offers = true;
	if (c->agreed.algorithms.must_read)
		large = 0;
	if (large || received >= KO_LEARN_STORES)
		ko_learn_messages(run, large, sent, received);
}

struct ko_run ko_transfers_run(const struct ko_run *collective)
{
	return (struct ko_run){ .comm = collective->comm,
				.desc = collective->desc,
				.tag = collective->tag,
				.since = collective->since,
				.needs = ko_transfers_need };
}

struct ko_transfer ko_transfers_part(const struct ko_run *collective, int peer, bool sends,
				     const void *buffer, size_t n)
{
	bool bytes = collective->desc.type == KO_DESC_BYTES;

	return (struct ko_transfer){
		.peer = peer,
		.sends = sends,
		.type = bytes ? KOLO_U8 : (enum kolo_type)collective->desc.type,
		.buffer = (char *)(uintptr_t)buffer,
		.n = bytes ? n * collective->size : n,
	};
}

struct ko_transfer *ko_transfers_room(struct kolo_comm *c, size_t count)
{
	struct ko_lanes *lanes = c->lanes;
	struct ko_transfer *more;

	if (count <= lanes->room)
		return lanes->transfers;
	more = realloc(lanes->transfers, count * sizeof(*more));
	if (!more)
		return NULL;
	lanes->transfers = more;
	lanes->room = count;
	return more;
}

/* Until something has moved. tried: just now nothing has. */
static int wait_for_lanes(struct ko_run *run, bool tried)
{
	int peer = run->comm->lanes->busy->peer;

	return (tried ? ko_run_wait_longer : ko_wait)(run, peer, "a lane", KO_TRACE_DATA, try_all,
						      run);
}

int ko_transfers_do(struct ko_run *run, struct ko_transfer *all, size_t count)
{
	struct ko_lanes *lanes = run->comm->lanes;
	bool own = false, tried;
	int rc = 0;

	for (size_t k = 0; k < count; k++)
		all[k].bytes = all[k].n * kolo_type_size(all[k].type);
	if (!run->comm->spread)
		decide(run, all, count);
	for (size_t k = 0; rc == 0 && k < count; k++) {
		if (all[k].peer != run->comm->rank)
			rc = put_in_lane(run, &all[k]);
		own = own || all[k].peer == run->comm->rank;
	}
	if (rc == 0)
		rc = try_all(run); /* first: others need not wait for copy_own */
	tried = rc == KO_EAGAIN && !own;
	if (rc >= 0)
		rc = own ? copy_own(run, all, count) : 0;
	/* While something moves all the time, nothing else notices that the communicator has
	 * failed. */
	for (; rc == 0 && lanes->busy && (rc = ko_wait_hear(run->comm)) == 0; tried = false)
		rc = wait_for_lanes(run, tried);
	if (rc < 0)
		rc = lanes->ops->explain(run, rc);
	for (; lanes->busy; lanes->busy = lanes->busy->busy) /* after an error */
		lanes->busy->first = NULL;
	if (run->stores == KO_STREAMING)
		ko_stream_fence();
	if (rc == 0 && (run->reading || run->writing))
		ko_learn(run);
	if (rc == 0)
		lanes->ops->trim(run->comm);
	return rc;
}
