/* Does send, recv and the collectives made of messages: lists them as transfers and has these done
 * (ko_p2p, ko_p2p_now, ko_p2p_together). */
#include "comm/p2p/p2p.h"

#include "comm/p2p/eager.h"
#include "comm/p2p/lane.h"
#include "comm/p2p/transfer.h"

/* ---- As transfers ---------------------------------------------------------------------------- */

/* The transfer of n elements of src or dst, from element `first` on. The buffer may be NULL if n is
 * 0. */
static struct ko_transfer part(const struct ko_call *call, int peer, bool sends, size_t first,
			       size_t n)
{
	const char *buffer = sends ? call->src : call->dst;

	return (struct ko_transfer){
		.peer = peer,
		.sends = sends,
		.type = call->type,
		/* only read if it sends */
		.buffer = n ? (char *)(uintptr_t)buffer + first * kolo_type_size(call->type) : NULL,
		.n = n,
	};
}

/* Lists a transfer to, or from, each rank, and returns how many there are. The nearest rank comes
 * first, so that not all ranks turn to the same one. */
static size_t list_parts(const struct ko_call *call, bool sends, struct ko_transfer *out)
{
	const struct kolo_comm *c = call->comm;
	const size_t *counts = sends || call->coll != KO_ALL_TO_ALL ? call->counts : call->received;

	ko_call_firsts(call, counts);
	for (int k = 0; k < c->nranks; k++) {
		int r = ko_ring_back(&c->ring, c->rank, sends ? -k : k);

		out[k] = part(call, r, sends, c->firsts[r], c->firsts[r + 1] - c->firsts[r]);
	}
	return (size_t)c->nranks;
}

/* Lists the transfers of a call and returns how many there are, at most 2 * nranks. Root's part for
 * itself has two transfers, like any other. */
static size_t list_transfers(const struct ko_call *call, struct ko_transfer *out)
{
	bool is_root = call->comm->rank == call->root;
	size_t count = 0;

	if (call->coll == KO_ALL_TO_ALL || (call->coll == KO_SCATTER && is_root))
		count += list_parts(call, true, out);
	if (call->coll == KO_ALL_TO_ALL || (call->coll == KO_GATHER && is_root))
		count += list_parts(call, false, out + count);
	if (call->coll == KO_GATHER || call->coll == KO_SEND_TO)
		out[count++] = part(call, call->root, true, 0, call->n);
	if (call->coll == KO_SCATTER || call->coll == KO_RECV_FROM)
		out[count++] = part(call, call->root, false, 0, call->n);
	return count;
}

/* ---- Performing ------------------------------------------------------------------------------ */

static int perform(struct ko_run *run, struct ko_transfer *all, size_t count)
{
	struct kolo_comm *c = run->comm;
	int rc = ko_desc_is_p2p(&run->desc) ? ko_run_begin_p2p(run) : ko_run_begin(run);

	if (rc == 0)
		rc = ko_transfers_do(run, all, count);
	for (size_t k = 0; rc == 0 && k < count; k++)
		if (all[k].peer != c->rank)
			*(all[k].sends ? &c->counters.model.sent : &c->counters.model.received) +=
				all[k].bytes;
	c->counters.p2p_ops += rc == 0;
	return ko_run_end(run, rc);
}

/* Does the call on a communicator that is claimed. */
static int do_claimed(const struct ko_call *call)
{
	struct kolo_comm *c = call->comm;
	struct ko_run run = { .comm = c, .needs = ko_transfers_need };
	bool is_message = ko_coll_is_message(call->coll);
	struct ko_transfer one, *all;

	run.desc = (struct ko_desc){ .n = call->n,
				     .root = call->root,
				     .coll = (uint8_t)call->coll,
				     .type = (uint8_t)call->type,
				     .how = call->uneven ? KO_UNEVEN : 0 };
	if (call->uneven)
		run.desc.n = 0; /* each pair of ranks has its own */
	all = is_message ? &one : ko_transfers_room(c, 2 * (size_t)c->nranks);
	if (!all)
		return ko_run_end(
			&run, ko_fail(KOLO_ENOMEM, "rank %d: kolo_%s: no memory for %d transfers",
				      c->rank, ko_coll_name((int)call->coll), 2 * c->nranks));
	return perform(&run, all, list_transfers(call, all));
}

int ko_p2p(const struct ko_call *call)
{
	int rc = ko_run_claim(call->comm, call->coll);

	if (rc < 0)
		return rc;
	if (!ko_coll_is_message(call->coll) || !ko_eager_pass(call))
		return do_claimed(call);
	ko_run_release(call->comm);
	return 0;
}

int ko_p2p_now(const struct ko_call *call)
{
	int rc = ko_run_claim(call->comm, call->coll);

	if (rc < 0)
		return rc;
	rc = ko_call_check(call);
	if (rc == 0)
		return do_claimed(call);
	ko_run_release(call->comm);
	return rc;
}

int ko_p2p_together(struct kolo_comm *c, size_t count, ko_next_fn *next, void *what)
{
	struct ko_run run = { .comm = c, .needs = ko_transfers_need };
	struct ko_transfer *all;
	int rc = ko_run_claim(c, KO_GROUP);

	if (rc < 0)
		return rc;
	run.desc = (struct ko_desc){ .n = count, .root = -1, .coll = KO_GROUP };
	all = ko_transfers_room(c, count);
	if (!all)
		return ko_run_end(&run,
				  ko_fail(KOLO_ENOMEM,
					  "rank %d: no memory for a group of %zu sends and recvs",
					  c->rank, count));
	for (size_t k = 0; k < count; k++)
		list_transfers(next(what), &all[k]);
	return perform(&run, all, count);
}
