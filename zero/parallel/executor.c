/* Runs a stage's list (kolo_pipeline_run): computations on the caller's thread, groups of messages
 * in two queues beside them. */
#include "zero/base/basics.h"
#include "zero/parallel/lists.h"
#include "zero/parallel/room.h"
#include "zero/parallel/text.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Buffers --------------------------------------------------------------------------------- */

/* Boundary tensors of one kind. */
struct pool {
	char *memory;
	int n;
	int *free, nfree; /* numbers of those that hold nothing */
};

/* A queue, and what goes through it. */
struct channel {
	struct kolo_comm *comm;
	struct kolo_queue *queue;
	struct pool sends, receives;
	int *received; /* of each chunk and micro-batch: the buffer that it is received into */
	int *made;     /* of each chunk and micro-batch: the buffer that its result is in */
	/* Sends on their way, the oldest first: their actions and buffers */
	struct {
		int action, buffer;
	} * pending;
	int npending;
};

struct kolo_pipeline_executor {
	const struct kolo_pipeline *pipeline;
	int stage;
	size_t n, bytes; /* of a boundary tensor */
	enum kolo_type type;
	struct channel channels[ZERO_CHANNELS];
	struct kolo_event **events; /* of each group of the list: its messages are done */
	int nevents;
	int *group_of; /* of each action: the number of its group in the list, from 0; -1: none */
	int *wanted;   /* of each channel, chunk and micro-batch: the group that receives it */
	bool failed;
	char failure[512];
	double compute, wait;
};

static int open_pool(struct pool *p, int n, size_t bytes)
{
	p->n = n;
	if (n == 0)
		return 0;
	p->memory = calloc((size_t)n, bytes ? bytes : 1);
	p->free = calloc((size_t)n, sizeof(*p->free));
	if (!p->memory || !p->free)
		return kolo_error_set(KOLO_ENOMEM,
				      "%d boundary tensors of %zu bytes: out of memory", n, bytes);
	for (p->nfree = 0; p->nfree < n; p->nfree++)
		p->free[p->nfree] = n - 1 - p->nfree;
	return 0;
}

static void close_pool(struct pool *p)
{
	free(p->memory);
	free(p->free);
}

/* The pool has one, by zero_rooms_of. */
static int take(struct pool *p)
{
	return p->free[--p->nfree];
}

static void give(struct pool *p, int buffer)
{
	p->free[p->nfree++] = buffer;
}

static void *at(const struct kolo_pipeline_executor *e, const struct pool *p, int buffer)
{
	return p->memory + (size_t)buffer * e->bytes;
}

/* The number of a part and micro-batch among those of this stage. */
static int index_of(const struct kolo_pipeline_executor *e, const struct kolo_action *a)
{
	const struct zero_pipeline_sizes *s = &e->pipeline->sizes;

	return a->part / s->stages * s->micros + a->micro;
}

static int *wanted_at(const struct kolo_pipeline_executor *e, const struct kolo_action *message)
{
	const struct zero_pipeline_sizes *s = &e->pipeline->sizes;

	return &e->wanted[zero_channel(message->type) * s->chunks * s->micros +
			  index_of(e, message)];
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* Numbers the groups of the list. */
static void number_groups(struct kolo_pipeline_executor *e)
{
	const struct zero_list *list = &e->pipeline->lists[e->stage];

	for (int i = 0; i < list->n; i++) {
		const struct kolo_action *a = &list->actions[i];
		bool message = zero_is_message(a->type);

		e->nevents += zero_begins_group(list, i);
		e->group_of[i] = message ? e->nevents - 1 : -1;
		if (message && !zero_is_send(a->type))
			*wanted_at(e, a) = e->group_of[i];
	}
}

static int open_channel(struct kolo_pipeline_executor *e, struct channel *c, int sends,
			int receives)
{
	size_t each = (size_t)e->pipeline->sizes.chunks * (size_t)e->pipeline->sizes.micros;
	int rc = open_pool(&c->sends, sends, e->bytes);

	if (rc == 0)
		rc = open_pool(&c->receives, receives, e->bytes);
	if (rc < 0)
		return rc;
	c->received = calloc(each, sizeof(*c->received));
	c->made = calloc(each, sizeof(*c->made));
	c->pending = calloc((size_t)sends + 1, sizeof(*c->pending));
	if (!c->received || !c->made || !c->pending)
		return kolo_error_set(KOLO_ENOMEM, "a queue of a pipeline: out of memory");
	return kolo_queue_create(&c->queue);
}

/* What needs no other rank. */
static int open_local(struct kolo_pipeline_executor *e)
{
	const struct zero_pipeline_sizes *s = &e->pipeline->sizes;
	const struct zero_list *list = &e->pipeline->lists[e->stage];
	struct zero_rooms rooms = zero_rooms_of(s, list);
	size_t each = (size_t)s->chunks * (size_t)s->micros;
	int rc = 0;

	e->group_of = calloc((size_t)list->n + 1, sizeof(*e->group_of));
	e->wanted = calloc(ZERO_CHANNELS * each, sizeof(*e->wanted));
	e->events = calloc((size_t)list->n + 1, sizeof(*e->events));
	if (!e->group_of || !e->wanted || !e->events)
		return kolo_error_set(KOLO_ENOMEM, "a stage of %d actions: out of memory", list->n);
	number_groups(e);
	for (int g = 0; rc == 0 && g < e->nevents; g++)
		rc = kolo_event_create(&e->events[g]);
	for (int c = 0; rc == 0 && c < ZERO_CHANNELS; c++)
		rc = open_channel(e, &e->channels[c], rooms.sends[c], rooms.receives[c]);
	return rc;
}

/* All lists, the number of elements and their type. */
static uint64_t hash_request(const struct kolo_pipeline *p, size_t n, enum kolo_type type)
{
	uint64_t hash = zero_hash(ZERO_HASH, &p->sizes, sizeof(p->sizes));

	hash = zero_hash(zero_hash(hash, &n, sizeof(n)), &type, sizeof(type));
	for (int s = 0; s < p->sizes.stages; s++)
		for (int i = 0; i < p->lists[s].n; i++) {
			const struct kolo_action *a = &p->lists[s].actions[i];
			const int words[] = { (int)a->type, a->part,  a->micro, a->buffer,
					      a->peer,      a->group, a->waits };

			hash = zero_hash(hash, words, sizeof(words));
		}
	return hash;
}

static int agree(struct kolo_comm *pipe, const struct kolo_pipeline *p, size_t n,
		 enum kolo_type type)
{
	int nranks = kolo_comm_nranks(pipe), rc = 0;
	uint64_t own = hash_request(p, n, type), *all = calloc((size_t)nranks, sizeof(*all));

	if (!all)
		rc = kolo_error_set(KOLO_ENOMEM, "hashes of %d stages: out of memory", nranks);
	rc = zero_share_failure(pipe, rc);
	if (rc == 0)
		rc = kolo_all_gather(pipe, &own, all, 1, KOLO_U64, NULL);
	for (int r = 0; rc == 0 && r < nranks; r++)
		if (all[r] != all[0])
			rc = kolo_error_set(
				KOLO_EMISMATCH,
				"stage %d has another pipeline, or boundary tensors of another size or type, than stage 0",
				r);
	free(all);
	return rc;
}

static int check_request(struct kolo_comm *pipe, const struct kolo_pipeline *p, size_t n,
			 enum kolo_type type)
{
	size_t bytes;

	if (!p)
		return kolo_error_set(KOLO_EINVAL, "an executor without a pipeline");
	if (p->sizes.stages != kolo_comm_nranks(pipe))
		return kolo_error_set(KOLO_EINVAL,
				      "a pipeline of %d stages on a communicator of %d ranks",
				      p->sizes.stages, kolo_comm_nranks(pipe));
	if (kolo_type_size(type) == 0 || __builtin_mul_overflow(n, kolo_type_size(type), &bytes) ||
	    bytes > (size_t)1 << 46)
		return kolo_error_set(
			KOLO_EINVAL,
			"boundary tensors of %zu elements of type %d: want a type that exists, and at most 2^46 bytes",
			n, (int)type);
	return 0;
}

/* Destroys what was made so far, and keeps the error's text. */
static int give_up(struct kolo_pipeline_executor *e, int rc)
{
	char text[512];

	snprintf(text, sizeof(text), "%s", kolo_last_error());
	kolo_pipeline_executor_destroy(e);
	return kolo_error_set(rc, "%s", text);
}

int kolo_pipeline_executor_create(struct kolo_comm *pipe, const struct kolo_pipeline *pipeline,
				  size_t n, enum kolo_type type,
				  struct kolo_pipeline_executor **out)
{
	struct kolo_pipeline_executor *e = NULL;
	int rc;

	if (!pipe || !out)
		return kolo_error_set(KOLO_EINVAL,
				      "an executor without a communicator, or without out");
	*out = NULL;
	rc = check_request(pipe, pipeline, n, type);
	if (rc == 0 && !(e = calloc(1, sizeof(*e))))
		rc = kolo_error_set(KOLO_ENOMEM, "an executor: out of memory");
	if (rc == 0) {
		*e = (struct kolo_pipeline_executor){ .pipeline = pipeline,
						      .stage = kolo_comm_rank(pipe),
						      .n = n,
						      .bytes = n * kolo_type_size(type),
						      .type = type };
		rc = open_local(e);
	}
	rc = zero_share_failure(pipe, rc);
	if (rc == 0)
		rc = agree(pipe, pipeline, n, type);
	for (int c = 0; rc == 0 && c < ZERO_CHANNELS; c++)
		rc = kolo_comm_split(pipe, 0, kolo_comm_rank(pipe), &e->channels[c].comm);
	if (rc < 0)
		return give_up(e, rc);
	*out = e;
	return 0;
}

void kolo_pipeline_executor_destroy(struct kolo_pipeline_executor *e)
{
	if (!e)
		return;
	for (int c = 0; c < ZERO_CHANNELS; c++) {
		struct channel *channel = &e->channels[c];

		kolo_queue_destroy(channel->queue);
		kolo_comm_destroy(channel->comm);
		close_pool(&channel->sends);
		close_pool(&channel->receives);
		free(channel->received);
		free(channel->made);
		free(channel->pending);
	}
	for (int g = 0; e->events && g < e->nevents; g++)
		kolo_event_destroy(e->events[g]);
	free(e->events);
	free(e->group_of);
	free(e->wanted);
	free(e);
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* The reason of a failure. A stage that fails aborts both communicators, and one of them may say
 * why. Returns the status that belongs to the text in kolo_last_error. */
static int find_cause(const struct kolo_pipeline_executor *e, int rc)
{
	for (int c = 0; c < ZERO_CHANNELS && rc == KOLO_EABORTED; c++) {
		int cause = kolo_comm_status(e->channels[c].comm);

		if (cause < 0)
			rc = cause;
	}
	return rc;
}

/* Says what an action waits for, and why that does not come. */
static int tell(const struct kolo_pipeline_executor *e, int i, const struct kolo_action *message,
		int rc)
{
	const struct kolo_action *a = &e->pipeline->lists[e->stage].actions[i];
	struct kolo_action other = zero_counterpart(message);
	char what[ZERO_ACTION_TEXT], why[400];
	const char *tensor = zero_channel(message->type) ? "gradient" : "activation";
	int stage = zero_stage_of(&e->pipeline->sizes, other.part);

	rc = find_cause(e, rc);
	snprintf(why, sizeof(why), "%s", kolo_last_error());
	if (zero_is_send(message->type))
		return kolo_error_set(
			rc,
			"stage %d, action %d (%s), waits until stage %d takes the %s of micro-batch %d: %s",
			e->stage, i, zero_action_text(a, what), stage, tensor, message->micro, why);
	return kolo_error_set(
		rc, "stage %d, action %d (%s), waits for the %s of micro-batch %d of stage %d: %s",
		e->stage, i, zero_action_text(a, what), tensor, message->micro, stage, why);
}

/* The same of a group of n messages, of which any may be what does not come. */
static int tell_group(const struct kolo_pipeline_executor *e, int i, int n, int rc)
{
	const struct kolo_action *a = &e->pipeline->lists[e->stage].actions[i];
	char first[ZERO_ACTION_TEXT], last[ZERO_ACTION_TEXT], why[400];

	rc = find_cause(e, rc);
	snprintf(why, sizeof(why), "%s", kolo_last_error());
	return kolo_error_set(rc, "stage %d, action %d, waits for the messages %s to %s: %s",
			      e->stage, i, zero_action_text(a, first),
			      zero_action_text(&a[n - 1], last), why);
}

static int wait_for(struct kolo_pipeline_executor *e, int group)
{
	double began = zero_now();
	int rc = kolo_event_wait(e->events[group]);

	e->wait += zero_now() - began;
	return rc;
}

/* Frees the buffer of the oldest send, when it is done. i: the action that waits for that. */
static int finish_send(struct kolo_pipeline_executor *e, struct channel *c, int i)
{
	int send = c->pending[0].action, rc = wait_for(e, e->group_of[send]);

	if (rc < 0)
		return tell(e, i, &e->pipeline->lists[e->stage].actions[send], rc);
	give(&c->sends, c->pending[0].buffer);
	c->npending--;
	for (int k = 0; k < c->npending; k++)
		c->pending[k] = c->pending[k + 1];
	return 0;
}

static int start_message(struct kolo_pipeline_executor *e, int i)
{
	const struct kolo_action *a = &e->pipeline->lists[e->stage].actions[i];
	struct channel *c = &e->channels[zero_channel(a->type)];
	int k = index_of(e, a);

	if (zero_is_send(a->type)) {
		c->pending[c->npending].action = i;
		c->pending[c->npending++].buffer = c->made[k];
		return kolo_send(c->comm, at(e, &c->sends, c->made[k]), e->n, e->type, a->peer,
				 c->queue);
	}
	c->received[k] = take(&c->receives);
	return kolo_recv(c->comm, at(e, &c->receives, c->received[k]), e->n, e->type, a->peer,
			 c->queue);
}

/* Starts the group that begins with action i. *n becomes the number of its messages. */
static int start_group(struct kolo_pipeline_executor *e, int i, int *n)
{
	const struct zero_list *list = &e->pipeline->lists[e->stage];
	const struct kolo_action *first = &list->actions[i];
	struct channel *c = &e->channels[zero_channel(first->type)];
	int group = e->group_of[i], rc = kolo_group_begin(), ended;

	for (*n = 0; i + *n < list->n && e->group_of[i + *n] == group; ++*n)
		if (rc == 0)
			rc = start_message(e, i + *n);
	ended = kolo_group_end();
	if (rc == 0)
		rc = ended;
	if (rc == 0)
		rc = kolo_event_record(e->events[group], c->queue);
	if (rc == 0 && first->waits)
		rc = wait_for(e, group);
	if (rc < 0 && *n > 1)
		return tell_group(e, i, *n, rc);
	return rc < 0 ? tell(e, i, first, rc) : 0;
}

/* ---- Computations ---------------------------------------------------------------------------- */

/* Waits for the input of action i, and for room for its result. */
static int prepare(struct kolo_pipeline_executor *e, int i, const struct kolo_action *a)
{
	struct kolo_action message;
	struct channel *c;
	int rc;

	if (zero_input_of(&e->pipeline->sizes, a, &message) &&
	    (rc = wait_for(e, *wanted_at(e, &message))) < 0)
		return tell(e, i, &message, rc);
	if (!zero_output_of(&e->pipeline->sizes, a, &message))
		return 0;
	c = &e->channels[zero_channel(message.type)];
	while (c->sends.nfree == 0)
		if ((rc = finish_send(e, c, i)) < 0)
			return rc;
	c->made[index_of(e, a)] = take(&c->sends);
	return 0;
}

static struct kolo_pipeline_tensors tensors_of(const struct kolo_pipeline_executor *e,
					       const struct kolo_action *a)
{
	const struct zero_pipeline_sizes *s = &e->pipeline->sizes;
	const struct channel *values = &e->channels[0], *gradients = &e->channels[1];
	struct kolo_pipeline_tensors t = { 0 };
	struct kolo_action message;
	int k = index_of(e, a);

	if (zero_has_message(s, KOLO_ACTION_RECV_ACTIVATION, a->part))
		t.input = at(e, &values->receives, values->received[k]);
	if (a->type != KOLO_ACTION_FORWARD &&
	    zero_has_message(s, KOLO_ACTION_RECV_GRADIENT, a->part))
		t.output_gradient = at(e, &gradients->receives, gradients->received[k]);
	if (!zero_output_of(s, a, &message))
		return t;
	if (a->type == KOLO_ACTION_FORWARD)
		t.output = at(e, &values->sends, values->made[k]);
	else
		t.input_gradient = at(e, &gradients->sends, gradients->made[k]);
	return t;
}

/* After the last backward nothing is needed of what was received. */
static void let_go(struct kolo_pipeline_executor *e, const struct kolo_action *a)
{
	const struct zero_pipeline_sizes *s = &e->pipeline->sizes;
	int k = index_of(e, a);

	if (zero_has_message(s, KOLO_ACTION_RECV_ACTIVATION, a->part))
		give(&e->channels[0].receives, e->channels[0].received[k]);
	if (zero_has_message(s, KOLO_ACTION_RECV_GRADIENT, a->part))
		give(&e->channels[1].receives, e->channels[1].received[k]);
}

static int compute(struct kolo_pipeline_executor *e, int i, kolo_pipeline_compute_fn *fn, void *arg)
{
	const struct kolo_action *a = &e->pipeline->lists[e->stage].actions[i];
	struct kolo_pipeline_tensors tensors;
	double began;
	int rc = prepare(e, i, a);

	if (rc < 0)
		return rc;
	tensors = tensors_of(e, a);
	began = zero_now();
	rc = fn(arg, a, &tensors);
	e->compute += zero_now() - began;
	if (rc > 0)
		rc = kolo_error_set(
			KOLO_EINVAL,
			"stage %d, action %d: compute returned %d, and wants 0 or a status",
			e->stage, i, rc);
	if (zero_ends(a))
		let_go(e, a);
	return rc;
}

/* ---- The run --------------------------------------------------------------------------------- */

/* All stages are at the end of their lists, or all fail: a stage that returns may use its
 * gradients. */
static int meet(struct kolo_pipeline_executor *e)
{
	double began = zero_now();
	int rc = kolo_barrier(e->channels[0].comm, NULL);
	char why[400];

	e->wait += zero_now() - began;
	if (rc == 0)
		return 0;
	rc = find_cause(e, rc);
	snprintf(why, sizeof(why), "%s", kolo_last_error());
	return kolo_error_set(rc, "stage %d, at its end, waits for the other stages: %s", e->stage,
			      why);
}

static int run_list(struct kolo_pipeline_executor *e, kolo_pipeline_compute_fn *fn, void *arg)
{
	const struct zero_list *list = &e->pipeline->lists[e->stage];
	int rc = 0, n;

	for (int i = 0; rc == 0 && i < list->n; i += n) {
		n = 1;
		rc = e->group_of[i] < 0 ? compute(e, i, fn, arg) : start_group(e, i, &n);
	}
	for (int c = 0; rc == 0 && c < ZERO_CHANNELS; c++)
		while (rc == 0 && e->channels[c].npending)
			rc = finish_send(e, &e->channels[c], list->n - 1);
	return rc == 0 ? meet(e) : rc;
}

/* The other stages must not wait for this one. */
static int fail(struct kolo_pipeline_executor *e, int rc)
{
	e->failed = true;
	snprintf(e->failure, sizeof(e->failure), "%s", kolo_last_error());
	for (int c = 0; c < ZERO_CHANNELS; c++)
		kolo_comm_abort(e->channels[c].comm);
	for (int c = 0; c < ZERO_CHANNELS; c++)
		kolo_queue_wait(e->channels[c].queue);
	return kolo_error_set(rc, "%s", e->failure);
}

int kolo_pipeline_run(struct kolo_pipeline_executor *e, kolo_pipeline_compute_fn *fn, void *arg)
{
	int rc;

	if (!e || !fn)
		return kolo_error_set(KOLO_EINVAL, "a run without an executor, or without compute");
	if (e->failed)
		return kolo_error_set(KOLO_EINVAL, "an earlier run has failed: %.400s", e->failure);
	rc = run_list(e, fn, arg);
	return rc < 0 ? fail(e, rc) : 0;
}

void kolo_pipeline_report_get(const struct kolo_pipeline_executor *e,
			      struct kolo_pipeline_report *out)
{
	*out = (struct kolo_pipeline_report){ .compute = e->compute, .wait = e->wait };
	for (int c = 0; c < ZERO_CHANNELS; c++) {
		const struct channel *channel = &e->channels[c];
		struct kolo_stats stats;

		out->buffers += channel->sends.n + channel->receives.n;
		if (kolo_comm_stats(channel->comm, &stats) == 0)
			out->sent_bytes += stats.sent_bytes;
	}
	out->buffer_bytes = (size_t)out->buffers * e->bytes;
}
