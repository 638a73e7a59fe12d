/* What a call consists of: whether it equals the last one (ko_call_is_known), where the ranks'
 * parts begin (ko_call_firsts), and its messages (ko_call_messages). */
#include "comm/core/call.h"

#include <string.h>

bool ko_call_is_known(const struct ko_call *call)
{
	const struct ko_call *last = &call->comm->known[call->coll].call;

	return last->comm && last->src == call->src && last->dst == call->dst &&
	       last->n == call->n && last->type == call->type && last->op == call->op &&
	       last->root == call->root && last->uneven == call->uneven;
}

void ko_call_forget(struct kolo_comm *c)
{
	for (int coll = 0; coll < KO_NKINDS; coll++)
		c->known[coll].call.comm = NULL;
}

void ko_call_firsts(const struct ko_call *call, const size_t *counts)
{
	size_t *firsts = call->comm->firsts, sum = 0;

	for (int r = 0; r < call->comm->nranks; r++) {
		firsts[r] = sum;
		sum += counts ? counts[r] : call->n;
	}
	firsts[call->comm->nranks] = sum;
}

/* The message of n elements of src or dst, from element `first` on. */
static struct ko_message part(const struct ko_call *call, int peer, bool sends, size_t first,
			      size_t n)
{
	const char *buffer = sends ? call->src : call->dst;

	return (struct ko_message){
		.peer = peer,
		.sends = sends,
		.type = call->type,
		.buffer = n ? (char *)(uintptr_t)buffer + first * kolo_type_size(call->type) : NULL,
		.n = n,
	};
}

/* A message to, or from, each rank. The nearest rank comes first, so that not all ranks turn to the
 * same one. */
static void give_parts(const struct ko_call *call, bool sends, ko_message_fn *each, void *what)
{
	const struct kolo_comm *c = call->comm;
	const size_t *counts = sends || call->coll != KO_ALL_TO_ALL ? call->counts : call->received;

	ko_call_firsts(call, counts);
	for (int k = 0; k < c->nranks; k++) {
		int r = ko_ring_back(&c->ring, c->rank, sends ? -k : k);
		struct ko_message m =
			part(call, r, sends, c->firsts[r], c->firsts[r + 1] - c->firsts[r]);

		each(what, &m);
	}
}

void ko_call_messages(const struct ko_call *call, ko_message_fn *each, void *what)
{
	bool is_root = call->comm->rank == call->root;

	if (call->coll == KO_ALL_TO_ALL || (call->coll == KO_SCATTER && is_root))
		give_parts(call, true, each, what);
	if (call->coll == KO_ALL_TO_ALL || (call->coll == KO_GATHER && is_root))
		give_parts(call, false, each, what);
	if (call->coll == KO_GATHER || call->coll == KO_SEND_TO) {
		struct ko_message m = part(call, call->root, true, 0, call->n);

		each(what, &m);
	}
	if (call->coll == KO_SCATTER || call->coll == KO_RECV_FROM) {
		struct ko_message m = part(call, call->root, false, 0, call->n);

		each(what, &m);
	}
}

void ko_call_post(struct kolo_comm *c, enum ko_coll coll, uint64_t n)
{
	const struct ko_desc desc = {
		.seq = ++c->sequence.seq, .n = n, .root = -1, .coll = (uint8_t)coll
	};

	c->sequence.history = ko_desc_history(c->sequence.history, &desc);
	ko_roster_enter(c->roster, c->rank, &desc);
	ko_roster_finish(c->roster, c->rank, desc.seq);
}
