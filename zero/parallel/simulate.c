/* Runs the lists of all stages on paper (zero_simulate), in passes: each pass lets every stage and
 * every queue go as far as it can, until none goes further. */
#include "zero/parallel/simulate.h"

#include "zero/base/basics.h"
#include "zero/parallel/room.h"

#include <stdlib.h>

enum { CHANNELS = ZERO_CHANNELS, KINDS = 4 };

/* Messages that are started together: actions [first, first + n) of a stage. */
struct group {
	int stage, first, n, channel;
	int left;       /* messages that have not passed */
	double started; /* when the stage came to it; -1: not yet */
	double began;   /* when it came to the head of its queue; -1: not yet */
	double latest;  /* when the last message so far has passed */
	double ended;   /* -1: not yet */
};

struct run {
	const struct zero_pipeline_sizes *sizes;
	const struct zero_list *lists;
	const struct kolo_pipeline_times *times;
	struct group *groups;
	int ngroups;
	int *group_of; /* of each message, by `index_of` */
	int *first;    /* of each stage: its first group; [stages + 1] */
	int *at;       /* of each stage: the action that comes next */
	int *started;  /* of each stage: the first group that was not */
	int *waiting;  /* of each stage: the group that it waits for; -1: none */
	int *head;     /* of each stage and channel: the group at the head of the queue */
	double *idle;  /* of each stage and channel: when the last group so far has ended */
	int *sends;    /* the groups of all sends: of each stage and channel in its order, */
	int *sent;     /* where they begin; [stages * channels + 1] */
	int *made;     /* of each stage and channel: results so far */
	struct zero_rooms *rooms; /* of each stage */
	double *time;             /* of each stage */
	bool *passed;             /* of each message */
	bool moved;               /* in this pass */
};

static size_t index_of(const struct run *r, const struct kolo_action *a)
{
	size_t kind = (size_t)(a->type - KOLO_ACTION_SEND_ACTIVATION);

	return (kind * (size_t)zero_parts(r->sizes) + (size_t)a->part) * (size_t)r->sizes->micros +
	       (size_t)a->micro;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static void list_sends(struct run *r, int stage)
{
	for (int c = 0, n = r->sent[stage * CHANNELS]; c < CHANNELS; c++) {
		const struct zero_list *list = &r->lists[stage];

		for (int i = 0; i < list->n; i++) {
			const struct kolo_action *a = &list->actions[i];

			if (zero_is_message(a->type) && zero_is_send(a->type) &&
			    zero_channel(a->type) == c)
				r->sends[n++] = r->group_of[index_of(r, a)];
		}
		r->sent[stage * CHANNELS + c + 1] = n;
	}
}

static void list_groups(struct run *r)
{
	for (int s = 0; s < r->sizes->stages; s++) {
		const struct zero_list *list = &r->lists[s];

		r->first[s] = r->ngroups;
		for (int i = 0; i < list->n; i++) {
			const struct kolo_action *a = &list->actions[i];

			if (!zero_is_message(a->type))
				continue;
			if (zero_begins_group(list, i))
				r->groups[r->ngroups++] = (struct group){
					.stage = s,
					.first = i,
					.channel = zero_channel(a->type),
					.started = -1,
					.began = -1,
					.ended = -1,
				};
			r->groups[r->ngroups - 1].n++;
			r->groups[r->ngroups - 1].left++;
			r->group_of[index_of(r, a)] = r->ngroups - 1;
		}
	}
	r->first[r->sizes->stages] = r->ngroups;
	for (int s = 0; s < r->sizes->stages; s++) {
		list_sends(r, s);
		r->rooms[s] = zero_rooms_of(r->sizes, &r->lists[s]);
	}
}

/* The next group of a stage and channel, from `g` on; -1: there is none. */
static int next_group(const struct run *r, int stage, int channel, int g)
{
	for (; g < r->first[stage + 1]; g++)
		if (r->groups[g].channel == channel)
			return g;
	return -1;
}

/* Begins the group at the head of a queue, if it was started. */
static void begin_head(struct run *r, int stage, int channel)
{
	int head = r->head[stage * CHANNELS + channel];
	struct group *g = head < 0 ? NULL : &r->groups[head];
	double since = r->idle[stage * CHANNELS + channel];

	if (!g || g->started < 0 || g->began >= 0)
		return;
	g->began = g->started > since ? g->started : since;
	r->moved = true;
}

static void pass_messages(struct run *r, struct group *g)
{
	for (int i = g->first; i < g->first + g->n; i++) {
		const struct kolo_action *a = &r->lists[g->stage].actions[i];
		struct kolo_action other = zero_counterpart(a);
		struct group *h = &r->groups[r->group_of[index_of(r, &other)]];
		double end;

		if (r->passed[index_of(r, a)] || h->began < 0)
			continue;
		end = (g->began > h->began ? g->began : h->began) + r->times->message;
		r->passed[index_of(r, a)] = r->passed[index_of(r, &other)] = true;
		g->left--;
		h->left--;
		g->latest = end > g->latest ? end : g->latest;
		h->latest = end > h->latest ? end : h->latest;
		r->moved = true;
	}
}

static void run_queue(struct run *r, int stage, int channel)
{
	int *head = &r->head[stage * CHANNELS + channel];
	struct group *g = *head < 0 ? NULL : &r->groups[*head];

	if (!g || g->began < 0)
		return;
	pass_messages(r, g);
	if (g->left)
		return;
	g->ended = r->idle[stage * CHANNELS + channel] = g->latest;
	*head = next_group(r, stage, channel, *head + 1);
	begin_head(r, stage, channel);
	r->moved = true;
}

/* ---- Stages ---------------------------------------------------------------------------------- */

static double seconds_of(const struct kolo_pipeline_times *t, enum kolo_action_type type)
{
	switch (type) {
	case KOLO_ACTION_FORWARD: return t->forward;
	case KOLO_ACTION_BACKWARD_INPUT: return t->backward_input;
	case KOLO_ACTION_BACKWARD_WEIGHT: return t->backward_weight;
	default: return t->backward_input + t->backward_weight;
	}
}

static void start(struct run *r, int stage)
{
	int started = r->started[stage]++;
	struct group *g = &r->groups[started];

	g->started = r->time[stage];
	begin_head(r, stage, g->channel);
	r->at[stage] += g->n;
	if (r->lists[stage].actions[r->at[stage] - 1].waits)
		r->waiting[stage] = started;
}

/* Whether a group has ended; then the stage's time is not before that. */
static bool wait_for(struct run *r, int stage, int group)
{
	double ended = r->groups[group].ended;

	if (ended > r->time[stage])
		r->time[stage] = ended;
	return ended >= 0;
}

/* Whether there is room for the result of a computation: the send whose place it takes has
 * ended. */
static bool has_room(struct run *r, int stage, const struct kolo_action *a)
{
	struct kolo_action message;
	int at, send;

	if (!zero_output_of(r->sizes, a, &message))
		return true;
	at = stage * CHANNELS + zero_channel(message.type);
	send = r->made[at] - r->rooms[stage].sends[zero_channel(message.type)];
	return send < 0 || wait_for(r, stage, r->sends[r->sent[at] + send]);
}

static void count_result(struct run *r, int stage, const struct kolo_action *a)
{
	struct kolo_action message;

	if (zero_output_of(r->sizes, a, &message))
		r->made[stage * CHANNELS + zero_channel(message.type)]++;
}

/* Does the next action of a stage. False: it can't yet. */
static bool act(struct run *r, int stage)
{
	const struct kolo_action *a = &r->lists[stage].actions[r->at[stage]];
	struct kolo_action input;

	if (r->waiting[stage] >= 0) {
		if (!wait_for(r, stage, r->waiting[stage]))
			return false;
		r->waiting[stage] = -1;
	} else if (zero_is_message(a->type)) {
		start(r, stage);
	} else {
		if (zero_input_of(r->sizes, a, &input) &&
		    !wait_for(r, stage, r->group_of[index_of(r, &input)]))
			return false;
		if (!has_room(r, stage, a))
			return false;
		count_result(r, stage, a);
		r->time[stage] += seconds_of(r->times, a->type);
		r->at[stage]++;
	}
	return true;
}

static bool is_done(const struct run *r, int stage)
{
	return r->at[stage] == r->lists[stage].n && r->waiting[stage] < 0;
}

/* ---- The run --------------------------------------------------------------------------------- */

static void run_all(struct run *r)
{
	do {
		r->moved = false;
		for (int s = 0; s < r->sizes->stages; s++) {
			while (!is_done(r, s) && act(r, s))
				r->moved = true;
			for (int c = 0; c < CHANNELS; c++)
				run_queue(r, s, c);
		}
	} while (r->moved);
}

/* A stage that is not at its end, from `stage` on. *at: the action that keeps it. */
static int find_stuck(const struct run *r, int stage, int *at)
{
	for (; stage < r->sizes->stages; stage++) {
		if (is_done(r, stage))
			continue;
		*at = r->waiting[stage] < 0 ? r->at[stage] : r->groups[r->waiting[stage]].first;
		return stage;
	}
	*at = -1;
	return -1;
}

static void conclude(const struct run *r, struct zero_simulated *out)
{
	*out = (struct zero_simulated){ .stuck_too = -1, .at_too = -1 };
	for (int s = 0; s < r->sizes->stages; s++)
		out->seconds = r->time[s] > out->seconds ? r->time[s] : out->seconds;
	out->stuck = find_stuck(r, 0, &out->at);
	if (out->stuck >= 0)
		out->stuck_too = find_stuck(r, out->stuck + 1, &out->at_too);
}

static int open_run(struct run *r)
{
	size_t stages = (size_t)r->sizes->stages, actions = 1;
	size_t messages = KINDS * (size_t)zero_parts(r->sizes) * (size_t)r->sizes->micros + 1;

	for (size_t s = 0; s < stages; s++)
		actions += (size_t)r->lists[s].n;
	r->groups = calloc(actions, sizeof(*r->groups));
	r->group_of = calloc(messages, sizeof(*r->group_of));
	r->passed = calloc(messages, sizeof(*r->passed));
	r->first = calloc(stages + 1, sizeof(*r->first));
	r->at = calloc(stages, sizeof(*r->at));
	r->started = calloc(stages, sizeof(*r->started));
	r->waiting = calloc(stages, sizeof(*r->waiting));
	r->head = calloc(stages * CHANNELS, sizeof(*r->head));
	r->idle = calloc(stages * CHANNELS, sizeof(*r->idle));
	r->sends = calloc(actions, sizeof(*r->sends));
	r->sent = calloc(stages * CHANNELS + 1, sizeof(*r->sent));
	r->made = calloc(stages * CHANNELS, sizeof(*r->made));
	r->rooms = calloc(stages, sizeof(*r->rooms));
	r->time = calloc(stages, sizeof(*r->time));
	if (!r->groups || !r->group_of || !r->passed || !r->first || !r->at || !r->started ||
	    !r->waiting || !r->head || !r->idle || !r->sends || !r->sent || !r->made || !r->rooms ||
	    !r->time)
		return kolo_error_set(KOLO_ENOMEM, "a run of %zu stages on paper: out of memory",
				      stages);
	list_groups(r);
	for (int s = 0; s < r->sizes->stages; s++) {
		r->started[s] = r->first[s];
		r->waiting[s] = -1;
		for (int c = 0; c < CHANNELS; c++)
			r->head[s * CHANNELS + c] = next_group(r, s, c, r->first[s]);
	}
	return 0;
}

int zero_simulate(const struct zero_pipeline_sizes *sizes, const struct zero_list *lists,
		  const struct kolo_pipeline_times *times, struct zero_simulated *out)
{
	struct run r = { .sizes = sizes, .lists = lists, .times = times };
	int rc = open_run(&r);

	if (rc == 0) {
		run_all(&r);
		conclude(&r, out);
	}
	free(r.groups);
	free(r.group_of);
	free(r.passed);
	free(r.first);
	free(r.at);
	free(r.started);
	free(r.waiting);
	free(r.head);
	free(r.idle);
	free(r.sends);
	free(r.sent);
	free(r.made);
	free(r.rooms);
	free(r.time);
	return rc;
}
