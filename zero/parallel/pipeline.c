/* Pipelines as data: made by a rule (kolo_pipeline_create) or of the caller's lists
 * (kolo_pipeline_from), asked, and timed on paper. */
#include "zero/parallel/lists.h"

#include "zero/base/basics.h"
#include "zero/parallel/check.h"
#include "zero/parallel/room.h"
#include "zero/parallel/schedules.h"
#include "zero/parallel/simulate.h"

#include <stdlib.h>

/* ---- Messages -------------------------------------------------------------------------------- */

/* Adds a group: what a computation has made, and the input of the next one of its queue. NULL:
 * there is none. */
static int add_group(const struct zero_pipeline_sizes *s, int channel,
		     const struct kolo_action *made, const struct kolo_action *next, int *group,
		     struct zero_list *out)
{
	struct kolo_action messages[2];
	int n = 0, rc = 0;

	if (made)
		messages[n++] = (struct kolo_action){
			.type = channel ? KOLO_ACTION_SEND_GRADIENT : KOLO_ACTION_SEND_ACTIVATION,
			.part = made->part,
			.micro = made->micro,
		};
	if (next)
		messages[n++] = (struct kolo_action){
			.type = channel ? KOLO_ACTION_RECV_GRADIENT : KOLO_ACTION_RECV_ACTIVATION,
			.part = next->part,
			.micro = next->micro,
		};
	for (int i = 0; rc == 0 && i < n; i++) {
		struct kolo_action *a = &messages[i];

		if (!zero_has_message(s, a->type, a->part))
			continue;
		a->peer = zero_stage_of(s, zero_counterpart(a).part);
		a->group = *group;
		rc = zero_list_add(out, a);
	}
	++*group;
	return rc;
}

/* The queue whose messages a computation has; -1: none. */
static int channel_of(enum kolo_action_type type)
{
	return type == KOLO_ACTION_FORWARD ? 0 : type == KOLO_ACTION_BACKWARD_WEIGHT ? -1 : 1;
}

/* The next computation from `i` on of a queue; NULL: there is none. */
static const struct kolo_action *next_of(const struct zero_list *list, int i, int channel)
{
	for (; i < list->n; i++)
		if (channel_of(list->actions[i].type) == channel)
			return &list->actions[i];
	return NULL;
}

/* Puts messages between computations. When a computation is done, its result is sent, and the input
 * of the next one of its queue may come: it travels while others are computed. The first input of a
 * queue may come before the computation that is before the one that needs it. */
static int add_messages(const struct zero_pipeline_sizes *s, const struct zero_list *computations,
			struct zero_list *out)
{
	const struct kolo_action *all = computations->actions;
	bool begun[2] = { false, false };
	int group = 0, rc = 0;

	for (int i = 0; rc == 0 && i < computations->n; i++) {
		const struct kolo_action *a = &all[i];
		int channel = channel_of(a->type);

		for (int k = i; rc == 0 && k <= i + 1 && k < computations->n; k++) {
			int next = channel_of(all[k].type);

			if (next < 0 || begun[next])
				continue;
			begun[next] = true;
			rc = add_group(s, next, NULL, &all[k], &group, out);
		}
		if (rc == 0)
			rc = zero_list_add(out, a);
		if (rc == 0 && channel >= 0)
			rc = add_group(s, channel, a, next_of(computations, i + 1, channel), &group,
				       out);
	}
	return rc;
}

/* ---- Buffers --------------------------------------------------------------------------------- */

/* Gives each micro-batch of a part a buffer in turns. Every rule ends them in the order in which it
 * begins them, so as many are enough as are kept at a time. */
static void choose_buffers(struct zero_list *computations, int part)
{
	int kept = 0, most = 1;

	for (int i = 0; i < computations->n; i++) {
		const struct kolo_action *a = &computations->actions[i];

		if (a->part != part)
			continue;
		kept += a->type == KOLO_ACTION_FORWARD;
		most = kept > most ? kept : most;
		kept -= zero_ends(a);
	}
	for (int i = 0; i < computations->n; i++)
		if (computations->actions[i].part == part)
			computations->actions[i].buffer = computations->actions[i].micro % most;
}

/* ---- Making ---------------------------------------------------------------------------------- */

static struct kolo_pipeline *new_pipeline(const struct zero_pipeline_sizes *sizes)
{
	struct kolo_pipeline *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->sizes = *sizes;
	p->lists = calloc((size_t)sizes->stages, sizeof(*p->lists));
	p->buffers = calloc((size_t)zero_parts(sizes), sizeof(*p->buffers));
	if (p->lists && p->buffers)
		return p;
	kolo_pipeline_destroy(p);
	return NULL;
}

void kolo_pipeline_destroy(struct kolo_pipeline *p)
{
	if (!p)
		return;
	for (int s = 0; p->lists && s < p->sizes.stages; s++)
		free(p->lists[s].actions);
	free(p->lists);
	free(p->buffers);
	free(p);
}

static int fill_stage(struct kolo_pipeline *p, enum kolo_pipeline_schedule schedule, int stage)
{
	struct zero_list computations = { 0 };
	int rc = zero_schedule_fill(schedule, &p->sizes, stage, &computations);

	for (int chunk = 0; rc == 0 && chunk < p->sizes.chunks; chunk++)
		choose_buffers(&computations, chunk * p->sizes.stages + stage);
	if (rc == 0)
		rc = add_messages(&p->sizes, &computations, &p->lists[stage]);
	free(computations.actions);
	return rc;
}

/* Checks the lists and gives the pipeline to the caller; destroys it if something is wrong. */
static int finish(struct kolo_pipeline *p, int rc, struct kolo_pipeline **out)
{
	if (rc == 0)
		rc = zero_check_lists(&p->sizes, p->lists, p->buffers);
	if (rc < 0)
		kolo_pipeline_destroy(p);
	else
		*out = p;
	return rc;
}

static int check_request(enum kolo_pipeline_schedule schedule, const struct zero_pipeline_sizes *s)
{
	if (!kolo_pipeline_schedule_name(schedule))
		return kolo_error_set(KOLO_EINVAL, "there is no pipeline schedule %d",
				      (int)schedule);
	if (s->chunks > 1 && schedule != KOLO_PIPELINE_INTERLEAVED)
		return kolo_error_set(
			KOLO_EINVAL,
			"the schedule %s has one chunk on each stage, not %d: want interleaved",
			kolo_pipeline_schedule_name(schedule), s->chunks);
	if (schedule == KOLO_PIPELINE_INTERLEAVED && s->micros % s->stages)
		return kolo_error_set(
			KOLO_EINVAL,
			"the schedule interleaved needs a multiple of %d micro-batches for %d stages, and there are %d",
			s->stages, s->stages, s->micros);
	return 0;
}

int kolo_pipeline_create(enum kolo_pipeline_schedule schedule, int stages, int chunks, int micros,
			 struct kolo_pipeline **out)
{
	struct zero_pipeline_sizes sizes = { stages, chunks, micros };
	struct kolo_pipeline *p;
	int rc;

	if (!out)
		return kolo_error_set(KOLO_EINVAL, "kolo_pipeline_create without out");
	*out = NULL;
	if ((rc = zero_check_sizes(&sizes)) < 0 || (rc = check_request(schedule, &sizes)) < 0)
		return rc;
	if (!(p = new_pipeline(&sizes)))
		return kolo_error_set(KOLO_ENOMEM, "a pipeline of %d stages: out of memory",
				      stages);
	for (int s = 0; rc == 0 && s < stages; s++)
		rc = fill_stage(p, schedule, s);
	return finish(p, rc, out);
}

int kolo_pipeline_from(int stages, int chunks, int micros, const struct kolo_action *const *lists,
		       const int *lengths, struct kolo_pipeline **out)
{
	struct zero_pipeline_sizes sizes = { stages, chunks, micros };
	struct kolo_pipeline *p;
	int rc;

	if (!out || !lists || !lengths)
		return kolo_error_set(KOLO_EINVAL, "a pipeline without lists, or without out");
	*out = NULL;
	if ((rc = zero_check_sizes(&sizes)) < 0)
		return rc;
	for (int s = 0; s < stages; s++)
		if (lengths[s] < 0 || (!lists[s] && lengths[s]) || lengths[s] > 1 << 24)
			return kolo_error_set(KOLO_EINVAL,
					      "stage %d has a list of %d actions%s: want 0 to 2^24",
					      s, lengths[s], lists[s] ? "" : " at NULL");
	if (!(p = new_pipeline(&sizes)))
		return kolo_error_set(KOLO_ENOMEM, "a pipeline of %d stages: out of memory",
				      stages);
	for (int s = 0; rc == 0 && s < stages; s++)
		for (int i = 0; rc == 0 && i < lengths[s]; i++)
			rc = zero_list_add(&p->lists[s], &lists[s][i]);
	return finish(p, rc, out);
}

int kolo_pipeline_check(int stages, int chunks, int micros, const struct kolo_action *const *lists,
			const int *lengths)
{
	struct kolo_pipeline *p;
	int rc = kolo_pipeline_from(stages, chunks, micros, lists, lengths, &p);

	if (rc == 0)
		kolo_pipeline_destroy(p);
	return rc;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

const struct kolo_action *kolo_pipeline_list(const struct kolo_pipeline *p, int stage, int *n)
{
	bool there = p && stage >= 0 && stage < p->sizes.stages;

	if (n)
		*n = there ? p->lists[stage].n : 0;
	return there ? p->lists[stage].actions : NULL;
}

int kolo_pipeline_buffers(const struct kolo_pipeline *p, int part)
{
	return p && part >= 0 && part < zero_parts(&p->sizes) ? p->buffers[part] : 0;
}

int kolo_pipeline_estimate(const struct kolo_pipeline *p, const struct kolo_pipeline_times *times,
			   struct kolo_pipeline_figures *out)
{
	const double all[] = { times ? times->forward : -1, times ? times->backward_input : -1,
			       times ? times->backward_weight : -1, times ? times->message : -1 };
	struct zero_simulated run;
	int rc;

	if (!p || !out)
		return kolo_error_set(KOLO_EINVAL, "figures of no pipeline, or into NULL");
	for (int i = 0; i < 4; i++)
		if (!(all[i] >= 0 && all[i] < __builtin_inf()))
			return kolo_error_set(
				KOLO_EINVAL, "times of a pipeline: %g is not finite and at least 0",
				all[i]);
	for (size_t i = 0; i < sizeof(times->reserved) / sizeof(times->reserved[0]); i++)
		if (times->reserved[i])
			return kolo_error_set(KOLO_EINVAL,
					      "times of a pipeline: reserved is not zero");
	if ((rc = zero_simulate(&p->sizes, p->lists, times, &run)) < 0)
		return rc;
	*out = (struct kolo_pipeline_figures){ .seconds = run.seconds };
	out->busy = (all[0] + all[1] + all[2]) * p->sizes.micros * p->sizes.chunks;
	if (!(out->seconds < __builtin_inf() && out->busy < __builtin_inf()))
		return kolo_error_set(KOLO_EINVAL,
				      "times of a pipeline: together they are infinite");
	/* Added up one after the other, a stage that is never idle may come to a little less. */
	if (out->seconds < out->busy)
		out->seconds = out->busy;
	if (out->busy > 0) {
		out->idle_share = 1 - out->busy / out->seconds;
		out->bubble_ratio = out->seconds / out->busy - 1;
	}
	return 0;
}
