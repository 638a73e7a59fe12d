/* Keeps the calls of a group (ko_group_add) and does them at its outermost end (kolo_group_end).
 *
 * The calls are sorted by communicator. A share is what one communicator has to do: first all its
 * sends and recvs together, those on streams before the others, then its collectives in the order
 * of their calls. Shares don't wait for each other. The thread that does the group does the first
 * share. Each other share is done by a thread of its communicator (comm->worker), which gets it at
 * the end of the group and begins when the group begins.
 *
 * A batch is a group with several communicators or queues, after its end. */
#include "comm/api/group.h"

#include "comm/api/perform.h"
#include "comm/core/left.h"
#include "comm/p2p/p2p.h"
#include "comm/sys/queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Memory for calls, which last as long as their group. */
struct chunk {
	struct chunk *next;
	size_t used, size; /* of the bytes after it */
};

enum { CHUNK = 16 << 10, ALIGN = 8 };

_Static_assert(sizeof(struct chunk) % ALIGN == 0, "calls after it are aligned");

/* The group that is open on this thread. */
static _Thread_local struct {
	int depth;                    /* of kolo_group_begin; 0: none is open */
	struct ko_left *first, *last; /* its calls */
	size_t count;                 /* of calls */
	struct chunk *chunks;         /* memory for them */
} group;

struct share {
	struct kolo_comm *comm;
	struct ko_left *first, **end; /* its calls, in order */
	size_t messages;              /* how many of them are sends and recvs without a stream, */
	size_t recorded;              /* and with one */
	uint64_t place;               /* in the communicator's order */
	bool done;
};

/* A group that has ended for its thread. Every thread that may still use it holds it. */
struct batch {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int holders;                              /* the last one frees it */
	enum { NOT_BEGUN, BEGUN, DROPPED } state; /* DROPPED: it will not be done */
	size_t left;                              /* shares that are not done */
	int code;                                 /* of the first failure; 0: none */
	char text[KO_TEXT];                       /* of the first failure */
	struct chunk *chunks;                     /* memory of its calls */
	size_t nshares;
	struct share shares[];
};

bool ko_group_is_open(void)
{
	return group.depth > 0;
}

/* Room for `len` bytes in the group that is open. NULL: no memory. */
static void *make_room(size_t len)
{
	struct chunk *chunk = group.chunks;
	char *room;

	len = (len + ALIGN - 1) / ALIGN * ALIGN;
	if (!chunk || chunk->size - chunk->used < len) {
		size_t size = len < CHUNK ? CHUNK : len;

		chunk = malloc(sizeof(*chunk) + size);
		if (!chunk)
			return NULL;
		*chunk = (struct chunk){ .next = group.chunks, .size = size };
		group.chunks = chunk;
	}
	room = (char *)(chunk + 1) + chunk->used;
	chunk->used += len;
	return room;
}

static void free_chunks(struct chunk *first)
{
	while (first) {
		struct chunk *next = first->next;

		free(first);
		first = next;
	}
}

int ko_group_add(const struct ko_call *call)
{
	struct ko_left *left = make_room(ko_left_len(call));

	if (!left)
		return ko_left_fail(call);
	ko_left_init(left, call);
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
	int rc = ko_comm_check_process(c, function);

	if (rc < 0 || !group.depth)
		return rc;
	return ko_fail(
		KOLO_EINVAL,
		"rank %d: %s between kolo_group_begin and kolo_group_end: want it before or after them",
		c->rank, function);
}

/* ---- Doing it -------------------------------------------------------------------------------- */

/* Is it a send or recv; with, or without, a stream? */
static bool is_message(const struct ko_left *left, bool recorded)
{
	const struct kolo_queue *queue = left->call.queue;

	return ko_coll_is_message(left->call.coll) && (queue && queue->stream) == recorded;
}

/* For ko_p2p_together: the next send or recv without a stream. */
static const struct ko_call *next_message(void *what)
{
	struct ko_left **at = what, *left = *at;

	while (!is_message(left, false))
		left = left->next;
	*at = left->next;
	return &left->call;
}

/* Counts a call of the share. */
static void count_message(struct share *share, const struct ko_left *left)
{
	share->messages += is_message(left, false);
	share->recorded += is_message(left, true);
}

/* Does the sends and recvs with streams. */
static int record_messages(const struct share *share)
{
	const struct ko_call **calls = malloc(share->recorded * sizeof(struct ko_call *));
	size_t count = 0;
	int rc;

	if (!calls)
		return ko_left_fail(&share->first->call);
	for (const struct ko_left *left = share->first; left; left = left->next)
		if (is_message(left, true))
			calls[count++] = &left->call;
	rc = calls[0]->queue->stream->messages(calls, count);
	free(calls);
	return rc;
}

static void hold(struct batch *batch)
{
	pthread_mutex_lock(&batch->lock);
	batch->holders++;
	pthread_mutex_unlock(&batch->lock);
}

static void let_go(struct batch *batch)
{
	int left;

	pthread_mutex_lock(&batch->lock);
	left = --batch->holders;
	pthread_mutex_unlock(&batch->lock);
	if (left)
		return;
	free_chunks(batch->chunks);
	pthread_mutex_destroy(&batch->lock);
	pthread_cond_destroy(&batch->changed);
	free(batch);
}

static void set_state(struct batch *batch, int state)
{
	pthread_mutex_lock(&batch->lock);
	batch->state = state;
	pthread_cond_broadcast(&batch->changed);
	pthread_mutex_unlock(&batch->lock);
}

/* Does the calls of a share when its turn in the communicator's order has come. */
static int perform_calls(const struct share *share)
{
	struct ko_left *at = share->first;
	int rc = ko_call_wait_turn(share->comm, share->place);

	if (rc == 0 && share->recorded)
		rc = record_messages(share);
	if (rc == 0 && share->messages)
		rc = ko_p2p_together(share->comm, share->messages, next_message, &at);
	for (at = share->first; rc == 0 && at; at = at->next)
		if (!ko_coll_is_message(at->call.coll))
			rc = ko_call_perform(&at->call, &at->red);
	return rc;
}

/* Have the two shares calls with the same stream? */
static bool share_a_stream(const struct share *a, const struct share *b)
{
	for (const struct ko_left *x = a->first; x; x = x->next)
		for (const struct ko_left *y = b->first; y && x->call.queue; y = y->next)
			if (x->call.queue->stream && y->call.queue &&
			    ko_queue_same(x->call.queue, y->call.queue))
				return true;
	return false;
}

/* What goes on one stream goes there in the order of the calls, on all ranks: waits for all earlier
 * shares that have a stream of this one. */
static void wait_for_streams(struct batch *batch, const struct share *share)
{
	pthread_mutex_lock(&batch->lock);
	for (const struct share *before = batch->shares; before < share; before++) {
		if (before->done || !share_a_stream(before, share))
			continue;
		while (!before->done)
			pthread_cond_wait(&batch->changed, &batch->lock);
	}
	pthread_mutex_unlock(&batch->lock);
}

/* Does a share and notes its failure in the batch. */
static void perform_share(struct batch *batch, struct share *share)
{
	struct ko_order *order = share->comm->order;
	int rc;

	wait_for_streams(batch, share);
	rc = perform_calls(share);
	pthread_mutex_lock(&batch->lock);
	share->done = true;
	if (rc < 0 && batch->code == 0) {
		batch->code = rc;
		memcpy(batch->text, kolo_last_error(), sizeof(batch->text));
	}
	batch->left--;
	pthread_cond_broadcast(&batch->changed);
	pthread_mutex_unlock(&batch->lock);
	ko_order_serve(order); /* from here on the communicator may be destroyed */
}

struct share_work {
	struct batch *batch;
	size_t index;
};

_Static_assert(sizeof(struct share_work) <= KO_WORK_ARG, "an item of a queue has room for a share");

/* On the communicator's own thread. */
static int perform_other_share(void *arg)
{
	const struct share_work *w = arg;
	struct batch *batch = w->batch;
	int state;

	pthread_mutex_lock(&batch->lock);
	while (batch->state == NOT_BEGUN)
		pthread_cond_wait(&batch->changed, &batch->lock);
	state = batch->state;
	pthread_mutex_unlock(&batch->lock);
	if (state == BEGUN)
		perform_share(batch, &batch->shares[w->index]);
	let_go(batch);
	return 0; /* the batch has the failure */
}

/* Blocks until all shares are done. Returns 0 or the first failure. */
static int wait_over(struct batch *batch)
{
	int rc;

	pthread_mutex_lock(&batch->lock);
	while (batch->left)
		pthread_cond_wait(&batch->changed, &batch->lock);
	rc = batch->code ? ko_fail(batch->code, "%s", batch->text) : 0;
	pthread_mutex_unlock(&batch->lock);
	return rc;
}

/* What all queues of its calls do except the first one: they wait until it is done. */
static int await_batch(void *arg)
{
	struct batch *batch = *(struct batch **)arg;
	int rc = wait_over(batch);

	let_go(batch);
	return rc;
}

/* What the first queue of its calls does. */
static int perform_batch(void *arg)
{
	struct batch *batch = *(struct batch **)arg;

	set_state(batch, BEGUN);
	perform_share(batch, &batch->shares[0]);
	return await_batch(&batch);
}

/* ---- Putting it together --------------------------------------------------------------------- */

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

/* Makes a batch of the calls, sorted by communicator. It owns their chunks from now on, and the
 * caller holds it. NULL: no memory. */
static struct batch *make_batch(struct ko_left *first, struct chunk *chunks)
{
	struct batch *batch = malloc(sizeof(*batch) + count_comms(first) * sizeof(struct share));

	if (!batch)
		return NULL;
	*batch = (struct batch){ .holders = 1, .chunks = chunks };
	pthread_mutex_init(&batch->lock, NULL);
	pthread_cond_init(&batch->changed, NULL);
	while (first) {
		struct ko_left *next = first->next;
		struct share *share = share_of(batch, first->call.comm);

		first->next = NULL;
		*share->end = first;
		share->end = &first->next;
		count_message(share, first);
		first = next;
	}
	batch->left = batch->nshares;
	return batch;
}

/* Puts the batch, or one share of it, into a queue, which holds it from now on. */
static int put(struct kolo_queue *queue, ko_work_fn *run, struct batch *batch, size_t index)
{
	const struct share_work w = { batch, index };
	int rc;

	hold(batch);
	rc = ko_queue_put(queue, run, &w, sizeof(w));
	if (rc < 0)
		let_go(batch);
	return rc;
}

/* Gives each share its place in its communicator's order. Gives all shares except the first to the
 * threads of their communicators. */
static int hand_out(struct batch *batch)
{
	int rc = 0;

	for (size_t k = 0; k < batch->nshares; k++) {
		struct share *share = &batch->shares[k];

		share->place = ++share->comm->order->issued;
		if (rc == 0 && k > 0 && !share->comm->worker)
			rc = kolo_queue_create(&share->comm->worker);
		if (rc == 0 && k > 0)
			rc = put(share->comm->worker, perform_other_share, batch, k);
	}
	return rc;
}

/* The batch will not be done. */
static void drop(struct batch *batch)
{
	for (size_t k = 0; k < batch->nshares; k++)
		batch->shares[k].comm->order->issued--;
	set_state(batch, DROPPED);
}

/* Makes the queue `waits` wait for what is in the queue `comes` now. */
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

/* The queues of a group's calls. What is in any of them already is done before the group, and what
 * is put in later is done after it. */
struct queues {
	struct kolo_queue **all; /* each one once */
	size_t count;
	bool now; /* there is a call without a queue, or with a stream */
};

static bool list_queues(const struct ko_left *first, size_t ncalls, struct queues *out)
{
	*out = (struct queues){ .all = malloc(ncalls * sizeof(*out->all)) };
	for (const struct ko_left *left = first; out->all && left; left = left->next) {
		size_t k = 0;

		while (k < out->count && out->all[k] != left->call.queue)
			k++;
		if (ko_queue_is_now(left->call.queue))
			out->now = true;
		else if (k == out->count)
			out->all[out->count++] = left->call.queue;
	}
	return out->all;
}

/* Does the batch, or leaves it to the first of the queues. */
static int start(struct batch *batch, const struct queues *queues)
{
	struct kolo_queue *first = queues->count ? queues->all[0] : NULL;
	bool wait = queues->now;
	int rc = hand_out(batch);

	for (size_t k = 1; rc == 0 && k < queues->count; k++)
		rc = fence(first, queues->all[k]);
	if (rc == 0 && first)
		rc = put(first, perform_batch, batch, 0);
	if (rc < 0) {
		drop(batch);
		return rc;
	}
	if (!first) {
		hold(batch);
		return perform_batch(&batch);
	}
	/* If there is no memory to make a queue wait, this thread does, so that no call gets into
	 * the queue before the batch is done. */
	for (size_t k = 1; k < queues->count; k++)
		wait = put(queues->all[k], await_batch, batch, 0) < 0 || wait;
	return wait ? wait_over(batch) : 0;
}

/* Has the group one communicator and no queue? Most groups have. Then there is nothing to wait
 * for. */
static bool is_simple(const struct ko_left *first)
{
	for (const struct ko_left *left = first; left; left = left->next)
		if (!ko_queue_is_now(left->call.queue) || left->call.comm != first->call.comm)
			return false;
	return true;
}

static int perform_simple(struct ko_left *first)
{
	struct share share = { .comm = first->call.comm, .first = first };

	for (const struct ko_left *left = first; left; left = left->next)
		count_message(&share, left);
	share.place = share.comm->order->issued + 1;
	return perform_calls(&share);
}

/* Does a group with several communicators or queues. Frees the chunks of its calls. */
static int perform_mixed(struct ko_left *first, size_t count, struct chunk *chunks)
{
	struct queues queues;
	struct batch *batch = list_queues(first, count, &queues) ? make_batch(first, chunks) : NULL;
	int rc;

	if (batch) {
		rc = start(batch, &queues);
		let_go(batch);
	} else {
		free_chunks(chunks);
		rc = ko_fail(KOLO_ENOMEM,
			     "kolo_group_end: no memory for the group; none of its calls was done");
	}
	free(queues.all);
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
	struct chunk *chunks = group.chunks;
	size_t count = group.count;
	int rc;

	if (group.depth == 0)
		return ko_fail(
			KOLO_EINVAL,
			"kolo_group_end: there is no kolo_group_begin before it on this thread");
	if (--group.depth || !first)
		return 0;
	group.first = group.last = NULL;
	group.chunks = NULL;
	group.count = 0;
	if (!is_simple(first))
		return perform_mixed(first, count, chunks);
	rc = perform_simple(first);
	free_chunks(chunks);
	return rc;
}
