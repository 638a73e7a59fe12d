/* See group.h. At the outermost end the calls are sorted by communicator. What one communicator has to do is a share: first
 * all sends and recvs together, then its collectives in the order of their calls. Shares don't wait for each other: the
 * first one is done by the thread that does the group, each of the others by a thread of its communicator. */
#include "group.h"

#include "pairs.h"
#include "queue.h"

#include <stdlib.h>
#include <string.h>

/* The group that is open on this thread. */
static _Thread_local struct {
	int depth; /* 0: none */
	struct ko_left *first, *last;
	size_t count;
} group;

struct share {
	struct kolo_comm *comm;
	struct ko_left *first, **end; /* its calls, in order */
	size_t pairs;                 /* how many are sends and recvs */
	uint64_t place;               /* in the communicator's order */
	int code;                     /* what it failed with, and the text; 0: it did not */
	char text[KO_TEXT];
};

struct batch {
	size_t nshares;
	struct share shares[];
};

bool ko_group_is_open(void)
{
	return group.depth > 0;
}

int ko_group_add(const struct ko_call *call)
{
	struct ko_left *left = ko_call_leave(call);

	if (!left)
		return KOLO_ENOMEM;
	if (group.last)
		group.last->next = left;
	else
		group.first = left;
	group.last = left;
	group.count++;
	return 0;
}

int ko_group_refuse(const struct kolo_comm *c, const char *function)
{
	return group.depth
		       ? ko_fail(KOLO_EINVAL,
				 "rank %d: %s between kolo_group_begin and kolo_group_end: want it before "
				 "or behind",
				 c->rank, function)
		       : 0;
}

/* ---- Doing it ------------------------------------------------------------------------------------------- */

static bool is_pair(const struct ko_left *left)
{
	return left->call.coll == KO_SEND_TO || left->call.coll == KO_RECV_FROM;
}

/* For ko_pairs_together: the next send or recv. */
static const struct ko_call *next_pair(void *what)
{
	struct ko_left **at = what, *left = *at;

	while (!is_pair(left))
		left = left->next;
	*at = left->next;
	return &left->call;
}

static int perform_share(void *arg)
{
	struct share *share = *(struct share **)arg;
	struct ko_left *at = share->first;
	int rc = ko_call_wait_turn(share->comm, share->place);

	if (rc == 0 && share->pairs)
		rc = ko_pairs_together(share->comm, share->pairs, next_pair, &at);
	for (at = share->first; rc == 0 && at; at = at->next)
		if (!is_pair(at))
			rc = ko_call_perform(&at->call, &at->red);
	share->code = rc;
	if (rc < 0)
		memcpy(share->text, kolo_last_error(), sizeof(share->text));
	ko_order_serve(share->comm->order);
	return 0; /* the batch tells */
}

static void free_calls(struct ko_left *first)
{
	while (first) {
		struct ko_left *next = first->next;

		free(first);
		first = next;
	}
}

static void free_batch(struct batch *batch)
{
	for (size_t k = 0; batch && k < batch->nshares; k++)
		free_calls(batch->shares[k].first);
	free(batch);
}

static int perform_batch(void *arg)
{
	struct batch *batch = *(struct batch **)arg;
	struct share *share = batch->shares;
	int rc = 0;

	for (size_t k = 1; k < batch->nshares; k++) {
		share = &batch->shares[k];
		if (ko_queue_put(share->comm->worker, perform_share, &share, sizeof(share)) < 0) {
			/* no way to do it, and the others wait for it */
			ko_comm_fail(share->comm, KOLO_ENOMEM, "%s", kolo_last_error());
			perform_share(&share);
		}
	}
	share = batch->shares;
	perform_share(&share);
	for (size_t k = 1; k < batch->nshares; k++)
		kolo_queue_wait(batch->shares[k].comm->worker);
	for (size_t k = 0; rc == 0 && k < batch->nshares; k++)
		if (batch->shares[k].code < 0)
			rc = ko_fail(batch->shares[k].code, "%s", batch->shares[k].text);
	free_batch(batch);
	return rc;
}

/* ---- Putting it together -------------------------------------------------------------------------------- */

static struct share *share_of(struct batch *batch, struct kolo_comm *c)
{
	struct share *share = batch->shares;

	while (share < batch->shares + batch->nshares && share->comm != c)
		share++;
	if (share == batch->shares + batch->nshares) {
		*share = (struct share){ .comm = c };
		share->end = &share->first;
		batch->nshares++;
	}
	return share;
}

static size_t count_comms(const struct ko_left *first)
{
	size_t count = 0;

	for (const struct ko_left *left = first; left; left = left->next) {
		const struct ko_left *before = first;

		while (before->call.comm != left->call.comm)
			before = before->next;
		count += before == left;
	}
	return count;
}

/* Sorts the calls, which it takes, by communicator. NULL: no memory, and the calls are gone. */
static struct batch *make_batch(struct ko_left *first)
{
	struct batch *batch = malloc(sizeof(*batch) + count_comms(first) * sizeof(struct share));

	if (!batch) {
		free_calls(first);
		ko_fail(KOLO_ENOMEM, "kolo_group_end: no memory for a group; nothing of it was done");
		return NULL;
	}
	batch->nshares = 0;
	while (first) {
		struct ko_left *next = first->next;
		struct share *share = share_of(batch, first->call.comm);

		first->next = NULL;
		*share->end = first;
		share->end = &first->next;
		share->pairs += is_pair(first);
		first = next;
	}
	return batch;
}

/* All that may fail before the first call is done: threads for all communicators but the first. */
static int prepare(struct batch *batch)
{
	int rc = 0;

	for (size_t k = 1; rc == 0 && k < batch->nshares; k++)
		if (!batch->shares[k].comm->worker)
			rc = kolo_queue_create(&batch->shares[k].comm->worker);
	return rc;
}

/* Each communicator goes on behind it. */
static void issue_places(struct batch *batch)
{
	for (size_t k = 0; k < batch->nshares; k++)
		batch->shares[k].place = ++batch->shares[k].comm->order->issued;
}

static void withdraw_places(struct batch *batch)
{
	for (size_t k = 0; k < batch->nshares; k++)
		batch->shares[k].comm->order->issued--;
}

/* Lets one queue wait for what is in the other now. */
static int fence(struct kolo_queue *waits, struct kolo_queue *comes)
{
	struct kolo_event *event;
	int rc = kolo_event_create(&event);

	if (rc == 0)
		rc = kolo_event_record(event, comes);
	if (rc == 0)
		rc = kolo_queue_wait_event(waits, event);
	kolo_event_destroy(event);
	return rc;
}

/* What is in a queue before it, of all queues of its calls, comes before it, and what is put in later behind it. */
struct queues {
	struct kolo_queue **all;
	size_t count;
	bool now; /* a call had none */
};

static bool list_queues(const struct ko_left *first, size_t ncalls, struct queues *out)
{
	*out = (struct queues){ .all = malloc(ncalls * sizeof(*out->all)) };
	for (const struct ko_left *left = first; out->all && left; left = left->next) {
		size_t k = 0;

		while (k < out->count && out->all[k] != left->call.queue)
			k++;
		if (!left->call.queue)
			out->now = true;
		else if (k == out->count)
			out->all[out->count++] = left->call.queue;
	}
	return out->all;
}

/* The first queue does it. */
static int enqueue(struct batch *batch, const struct queues *queues)
{
	struct kolo_queue *first = queues->all[0];
	struct kolo_event *done = NULL;
	int rc = queues->now ? kolo_event_create(&done) : 0;

	for (size_t k = 1; rc == 0 && k < queues->count; k++)
		rc = fence(first, queues->all[k]);
	issue_places(batch);
	if (rc == 0)
		rc = ko_queue_put(first, perform_batch, &batch, sizeof(batch));
	if (rc < 0) {
		withdraw_places(batch);
		free_batch(batch);
		kolo_event_destroy(done);
		return rc;
	}
	for (size_t k = 1; rc == 0 && k < queues->count; k++)
		rc = fence(queues->all[k], first);
	if (rc == 0 && done)
		rc = kolo_event_record(done, first);
	if (rc == 0 && done)
		rc = kolo_event_wait(done);
	kolo_event_destroy(done);
	return rc;
}

int kolo_group_begin(void)
{
	group.depth++;
	return 0;
}

int kolo_group_end(void)
{
	struct ko_left *first = group.first;
	size_t count = group.count;
	struct queues queues;
	struct batch *batch;
	int rc;

	if (group.depth == 0)
		return ko_fail(KOLO_EINVAL,
			       "kolo_group_end: there is no kolo_group_begin before it on this thread");
	if (--group.depth || !first)
		return 0;
	group.first = group.last = NULL;
	group.count = 0;
	if (!list_queues(first, count, &queues)) {
		free_calls(first);
		return ko_fail(KOLO_ENOMEM, "kolo_group_end: no memory for a group; nothing of it was done");
	}
	batch = make_batch(first);
	rc = batch ? prepare(batch) : KOLO_ENOMEM;
	if (rc < 0) {
		free_batch(batch);
	} else if (queues.count) {
		rc = enqueue(batch, &queues);
	} else {
		issue_places(batch);
		rc = perform_batch(&batch);
	}
	free(queues.all);
	return rc;
}
