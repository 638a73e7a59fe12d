/* Checks the lists of a pipeline (zero_check_lists): first each list alone, then messages between
 * them, then a run on paper. */
#include "zero/parallel/check.h"

#include "zero/base/basics.h"
#include "zero/parallel/room.h"
#include "zero/parallel/simulate.h"
#include "zero/parallel/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { TYPES = KOLO_ACTION_RECV_GRADIENT + 1, MOST_ACTIONS = 1 << 24 };

/* Where everything is. */
struct index {
	const struct zero_pipeline_sizes *sizes;
	const struct zero_list *lists;
	int *at; /* of each type, part and micro-batch: its action in its stage's list; -1: none */
};

static int *at(const struct index *x, enum kolo_action_type type, int part, int micro)
{
	size_t parts = (size_t)zero_parts(x->sizes), micros = (size_t)x->sizes->micros;

	return &x->at[((size_t)type * parts + (size_t)part) * micros + (size_t)micro];
}

/* "stage 1, action 5 (1F2): " and the reason. */
static int refuse(const struct index *x, int stage, int action, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
static int refuse(const struct index *x, int stage, int action, const char *format, ...)
{
	char what[ZERO_ACTION_TEXT], why[256];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	return kolo_error_set(KOLO_EINVAL, "stage %d, action %d (%s): %s", stage, action,
			      zero_action_text(&x->lists[stage].actions[action], what), why);
}

/* ---- Each action ----------------------------------------------------------------------------- */

static int check_message(const struct index *x, int stage, int i)
{
	const struct kolo_action *a = &x->lists[stage].actions[i];
	const struct kolo_action *before = i ? a - 1 : NULL;
	struct kolo_action other = zero_counterpart(a);
	int peer;

	if (!zero_has_message(x->sizes, a->type, a->part))
		return refuse(x, stage, i,
			      "there is no such message: no other stage has that part");
	peer = zero_stage_of(x->sizes, other.part);
	if (a->peer != peer)
		return refuse(x, stage, i, "the other part is of stage %d, not %d", peer, a->peer);
	if (a->group < 0 || a->buffer != 0 || (a->waits != 0 && a->waits != 1))
		return refuse(
			x, stage, i,
			"its group is %d, its buffer %d, waits %d: want at least 0, 0, and 0 or 1",
			a->group, a->buffer, a->waits);
	if (before && zero_is_message(before->type) && before->group == a->group &&
	    (zero_channel(before->type) != zero_channel(a->type) || before->waits != a->waits))
		return refuse(
			x, stage, i,
			"it is in one group with a message of the other queue, or one that waits otherwise");
	return 0;
}

static int check_action(const struct index *x, int stage, int i)
{
	const struct kolo_action *a = &x->lists[stage].actions[i];

	if ((unsigned)a->type >= TYPES || a->part < 0 || a->part >= zero_parts(x->sizes) ||
	    a->micro < 0 || a->micro >= x->sizes->micros)
		return refuse(x, stage, i,
			      "there is no such type, part (0 to %d) or micro-batch (0 to %d)",
			      zero_parts(x->sizes) - 1, x->sizes->micros - 1);
	if (a->reserved[0] || a->reserved[1])
		return refuse(x, stage, i, "its reserved words are not zero");
	if (zero_stage_of(x->sizes, a->part) != stage)
		return refuse(x, stage, i, "part %d is of stage %d", a->part,
			      zero_stage_of(x->sizes, a->part));
	if (*at(x, a->type, a->part, a->micro) >= 0)
		return refuse(x, stage, i, "it is in the list twice, action %d too",
			      *at(x, a->type, a->part, a->micro));
	*at(x, a->type, a->part, a->micro) = i;
	if (zero_is_message(a->type))
		return check_message(x, stage, i);
	if (a->peer != -1 || a->group != -1 || a->waits != 0 || a->buffer < 0 ||
	    a->buffer >= x->sizes->micros)
		return refuse(
			x, stage, i,
			"its peer, group, waits and buffer are %d, %d, %d and %d: want -1, -1, 0, and a number below %d",
			a->peer, a->group, a->waits, a->buffer, x->sizes->micros);
	return 0;
}

/* ---- One part and micro-batch ---------------------------------------------------------------- */

/* A second action that must be in the list, after a first one. -1 of the first: it is at the
 * beginning. */
static int check_after(const struct index *x, int stage, int first, enum kolo_action_type type,
		       int part, int micro)
{
	struct kolo_action wanted = { .type = type, .part = part, .micro = micro };
	char what[ZERO_ACTION_TEXT];
	int second = *at(x, type, part, micro);

	if (zero_is_message(type))
		wanted.peer = zero_stage_of(x->sizes, zero_counterpart(&wanted).part);
	if (second < 0)
		return kolo_error_set(KOLO_EINVAL, "stage %d: %s is not in its list", stage,
				      zero_action_text(&wanted, what));
	if (second > first)
		return 0;
	return refuse(x, stage, second, "it comes before action %d, whose result it needs", first);
}

/* A message that must come between what it brings and what needs it. */
static int check_receive(const struct index *x, int stage, enum kolo_action_type type, int part,
			 int micro, int needed_by)
{
	int rc = zero_has_message(x->sizes, type, part)
			 ? check_after(x, stage, -1, type, part, micro)
			 : 0;

	if (rc < 0 || *at(x, type, part, micro) < needed_by)
		return rc;
	return refuse(x, stage, needed_by, "its input comes later, in action %d",
		      *at(x, type, part, micro));
}

/* On one stage: the neighbour's part has come to it. */
static int check_neighbour(const struct index *x, enum kolo_action_type type, int part, int micro,
			   int needed_by)
{
	int other;

	if (x->sizes->stages > 1 || part < 0 || part >= zero_parts(x->sizes))
		return 0;
	other = *at(x, type, part, micro);
	if (type == KOLO_ACTION_BACKWARD && other < 0)
		other = *at(x, KOLO_ACTION_BACKWARD_INPUT, part, micro);
	if (other >= 0 && other < needed_by)
		return 0;
	return refuse(x, 0, needed_by, "part %d has not computed its input before it", part);
}

static int check_backward(const struct index *x, int stage, int part, int micro, int forward)
{
	int whole = *at(x, KOLO_ACTION_BACKWARD, part, micro);
	int input = *at(x, KOLO_ACTION_BACKWARD_INPUT, part, micro);
	int weight = *at(x, KOLO_ACTION_BACKWARD_WEIGHT, part, micro);
	int first = whole >= 0 ? whole : input, rc;

	if (whole >= 0 && (input >= 0 || weight >= 0))
		return refuse(x, stage, whole, "beside a backward for inputs or weights alone");
	rc = check_after(x, stage, forward,
			 input >= 0 || weight >= 0 ? KOLO_ACTION_BACKWARD_INPUT
						   : KOLO_ACTION_BACKWARD,
			 part, micro);
	if (rc == 0 && input >= 0)
		rc = check_after(x, stage, input, KOLO_ACTION_BACKWARD_WEIGHT, part, micro);
	if (rc == 0)
		rc = check_receive(x, stage, KOLO_ACTION_RECV_GRADIENT, part, micro, first);
	if (rc == 0)
		rc = check_neighbour(x, KOLO_ACTION_BACKWARD, part + 1, micro, first);
	if (rc == 0 && zero_has_message(x->sizes, KOLO_ACTION_SEND_GRADIENT, part))
		rc = check_after(x, stage, first, KOLO_ACTION_SEND_GRADIENT, part, micro);
	return rc;
}

static int check_work(const struct index *x, int part, int micro)
{
	int stage = zero_stage_of(x->sizes, part);
	int rc = check_after(x, stage, -1, KOLO_ACTION_FORWARD, part, micro);
	int forward = *at(x, KOLO_ACTION_FORWARD, part, micro);

	if (rc == 0)
		rc = check_receive(x, stage, KOLO_ACTION_RECV_ACTIVATION, part, micro, forward);
	if (rc == 0)
		rc = check_neighbour(x, KOLO_ACTION_FORWARD, part - 1, micro, forward);
	if (rc == 0 && zero_has_message(x->sizes, KOLO_ACTION_SEND_ACTIVATION, part))
		rc = check_after(x, stage, forward, KOLO_ACTION_SEND_ACTIVATION, part, micro);
	return rc == 0 ? check_backward(x, stage, part, micro, forward) : rc;
}

/* ---- Buffers --------------------------------------------------------------------------------- */

/* holder: of each buffer of the part the micro-batch in it; -1: none. */
static int check_buffers(const struct index *x, int part, int *holder, int *most)
{
	int stage = zero_stage_of(x->sizes, part);
	const struct zero_list *list = &x->lists[stage];

	*most = 0;
	for (int b = 0; b < x->sizes->micros; b++)
		holder[b] = -1;
	for (int i = 0; i < list->n; i++) {
		const struct kolo_action *a = &list->actions[i];
		int *held = &holder[a->buffer];

		if (zero_is_message(a->type) || a->part != part)
			continue;
		if (a->type == KOLO_ACTION_FORWARD && *held >= 0)
			return refuse(x, stage, i, "its buffer %d keeps micro-batch %d", a->buffer,
				      *held);
		if (a->type == KOLO_ACTION_FORWARD)
			*held = a->micro;
		if (*held != a->micro)
			return refuse(x, stage, i, "its buffer %d is not that of its forward",
				      a->buffer);
		if (zero_ends(a))
			*held = -1;
		*most = a->buffer + 1 > *most ? a->buffer + 1 : *most;
	}
	return 0;
}

/* ---- Between stages -------------------------------------------------------------------------- */

/* What a stage sends in a queue goes to one other stage: it arrives there in the order in which it
 * is sent. */
static int check_arrivals(const struct index *x, int stage, int channel)
{
	const struct zero_list *list = &x->lists[stage];
	int last = -1;

	for (int i = 0; i < list->n; i++) {
		const struct kolo_action *a = &list->actions[i];
		struct kolo_action other;
		int arrives;

		if (!zero_is_message(a->type) || !zero_is_send(a->type) ||
		    zero_channel(a->type) != channel)
			continue;
		other = zero_counterpart(a);
		arrives = *at(x, other.type, other.part, other.micro);
		if (arrives < last)
			return refuse(
				x, stage, i,
				"stage %d receives it in action %d, before what is sent earlier",
				a->peer, arrives);
		last = arrives;
	}
	return 0;
}

static int check_run(const struct index *x)
{
	const struct kolo_pipeline_times times = { 1, 1, 1, 0, { 0 } };
	char first[ZERO_ACTION_TEXT], second[ZERO_ACTION_TEXT];
	struct zero_simulated run;
	int rc = zero_simulate(x->sizes, x->lists, &times, &run);

	if (rc < 0 || run.stuck < 0)
		return rc;
	zero_action_text(&x->lists[run.stuck].actions[run.at], first);
	if (run.stuck_too < 0)
		return kolo_error_set(KOLO_EINVAL,
				      "deadlock: stage %d waits for ever in action %d (%s)",
				      run.stuck, run.at, first);
	return kolo_error_set(
		KOLO_EINVAL,
		"deadlock: stage %d waits in action %d (%s), and stage %d in action %d (%s)",
		run.stuck, run.at, first, run.stuck_too, run.at_too,
		zero_action_text(&x->lists[run.stuck_too].actions[run.at_too], second));
}

/* ---- All of it ------------------------------------------------------------------------------- */

int zero_check_sizes(const struct zero_pipeline_sizes *s)
{
	if (s->stages >= 1 && s->chunks >= 1 && s->micros >= 1 && s->stages <= 1 << 16 &&
	    s->chunks <= 1 << 16 && s->micros <= MOST_ACTIONS &&
	    (int64_t)s->stages * s->chunks <= MOST_ACTIONS / TYPES / s->micros)
		return 0;
	return kolo_error_set(
		KOLO_EINVAL,
		"%d stages, %d chunks, %d micro-batches: want at least 1 of each, and all three multiplied at most %d",
		s->stages, s->chunks, s->micros, MOST_ACTIONS / TYPES);
}

static int check_all(const struct index *x, int *holder, int *buffers)
{
	int rc = 0, most;

	for (int s = 0; rc == 0 && s < x->sizes->stages; s++)
		for (int i = 0; rc == 0 && i < x->lists[s].n; i++)
			rc = check_action(x, s, i);
	for (int part = 0; rc == 0 && part < zero_parts(x->sizes); part++) {
		for (int micro = 0; rc == 0 && micro < x->sizes->micros; micro++)
			rc = check_work(x, part, micro);
		if (rc == 0)
			rc = check_buffers(x, part, holder, &most);
		if (rc == 0 && buffers)
			buffers[part] = most;
	}
	for (int s = 0; rc == 0 && s < x->sizes->stages; s++)
		for (int channel = 0; rc == 0 && channel < 2; channel++)
			rc = check_arrivals(x, s, channel);
	return rc == 0 ? check_run(x) : rc;
}

int zero_check_lists(const struct zero_pipeline_sizes *sizes, const struct zero_list *lists,
		     int *buffers)
{
	size_t n = TYPES * (size_t)zero_parts(sizes) * (size_t)sizes->micros;
	struct index x = { sizes, lists, calloc(n, sizeof(*x.at)) };
	int *holder = calloc((size_t)sizes->micros, sizeof(*holder)), rc;

	for (size_t i = 0; x.at && i < n; i++)
		x.at[i] = -1;
	rc = x.at && holder ? check_all(&x, holder, buffers)
			    : kolo_error_set(KOLO_ENOMEM, "a check of %d stages: out of memory",
					     sizes->stages);
	free(x.at);
	free(holder);
	return rc;
}
