/* Does send, recv and the collectives made of messages: lists them as transfers and has these done
 * (ko_p2p, ko_p2p_now, ko_p2p_together). */
#include "comm/p2p/p2p.h"

#include "comm/p2p/eager.h"
#include "comm/p2p/lane.h"
#include "comm/p2p/transfer.h"

/* ---- As transfers ---------------------------------------------------------------------------- */

static void append(void *what, const struct ko_message *m)
{
	struct ko_transfer **end = what;

	*(*end)++ = (struct ko_transfer){
		.peer = m->peer, .sends = m->sends, .type = m->type, .buffer = m->buffer, .n = m->n
	};
}

/* Lists the transfers of a call and returns how many there are, at most 2 * nranks. */
static size_t list_transfers(const struct ko_call *call, struct ko_transfer *out)
{
	struct ko_transfer *end = out;

	ko_call_messages(call, append, &end);
	return (size_t)(end - out);
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
	run.by_link = !is_message;
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
