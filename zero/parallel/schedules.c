/* The rules of the schedules (zero_schedule_fill). Every rule computes the micro-batches of a part
 * in ascending order, forward and backward, so that sums of gradients have the bits of one rank. */
#include "zero/parallel/schedules.h"

#include "zero/base/basics.h"

#include <stdlib.h>

int zero_list_add(struct zero_list *list, const struct kolo_action *action)
{
	if (list->n == list->room) {
		int room = list->room ? 2 * list->room : 16;
		struct kolo_action *more =
			realloc(list->actions, (size_t)room * sizeof(*list->actions));

		if (!more)
			return kolo_error_set(KOLO_ENOMEM, "a list of %d actions: out of memory",
					      room);
		list->actions = more;
		list->room = room;
	}
	list->actions[list->n++] = *action;
	return 0;
}

/* What a rule is applied to. */
struct filling {
	struct zero_pipeline_sizes sizes;
	int stage;
	struct zero_list *list;
	int rc;
};

static void add(struct filling *f, enum kolo_action_type type, int part, int micro)
{
	const struct kolo_action a = {
		.type = type, .part = part, .micro = micro, .peer = -1, .group = -1
	};

	if (f->rc == 0)
		f->rc = zero_list_add(f->list, &a);
}

static void gpipe(struct filling *f)
{
	for (int j = 0; j < f->sizes.micros; j++)
		add(f, KOLO_ACTION_FORWARD, f->stage, j);
	for (int j = 0; j < f->sizes.micros; j++)
		add(f, KOLO_ACTION_BACKWARD, f->stage, j);
}

/* Forwards before the first backward: so that the last stage's first gradient arrives in time. */
static int warm_up(const struct filling *f)
{
	int n = f->sizes.stages - 1 - f->stage;

	return n < f->sizes.micros ? n : f->sizes.micros;
}

static void one_f_one_b(struct filling *f)
{
	int m = f->sizes.micros, ahead = warm_up(f);

	for (int j = 0; j < ahead; j++)
		add(f, KOLO_ACTION_FORWARD, f->stage, j);
	for (int j = ahead; j < m; j++) {
		add(f, KOLO_ACTION_FORWARD, f->stage, j);
		add(f, KOLO_ACTION_BACKWARD, f->stage, j - ahead);
	}
	for (int j = m - ahead; j < m; j++)
		add(f, KOLO_ACTION_BACKWARD, f->stage, j);
}

/* The k-th forward or backward of a stage is of chunk `chunk`: groups of as many micro-batches as
 * there are stages go through one chunk after the other. */
static void add_interleaved(struct filling *f, enum kolo_action_type type, int k)
{
	int p = f->sizes.stages, v = f->sizes.chunks, chunk = k / p % v;

	if (type == KOLO_ACTION_BACKWARD)
		chunk = v - 1 - chunk;
	add(f, type, chunk * p + f->stage, k / (p * v) * p + k % p);
}

static void interleaved(struct filling *f)
{
	int p = f->sizes.stages, v = f->sizes.chunks, all = f->sizes.micros * v;
	int ahead = 2 * (p - 1 - f->stage) + (v - 1) * p;

	ahead = ahead < all ? ahead : all;
	for (int k = 0; k < ahead; k++)
		add_interleaved(f, KOLO_ACTION_FORWARD, k);
	for (int k = ahead; k < all; k++) {
		add_interleaved(f, KOLO_ACTION_FORWARD, k);
		add_interleaved(f, KOLO_ACTION_BACKWARD, k - ahead);
	}
	for (int k = all - ahead; k < all; k++)
		add_interleaved(f, KOLO_ACTION_BACKWARD, k);
}

/* As 1F1B, but stage s puts off the backward for weights by s micro-batches. So much of it is left
 * for the end, where the stage would wait. */
static void zb_h1(struct filling *f)
{
	int m = f->sizes.micros, ahead = warm_up(f), weights = 0;

	for (int j = 0; j < ahead; j++)
		add(f, KOLO_ACTION_FORWARD, f->stage, j);
	for (int j = 0; j < m; j++) {
		if (ahead + j < m)
			add(f, KOLO_ACTION_FORWARD, f->stage, ahead + j);
		add(f, KOLO_ACTION_BACKWARD_INPUT, f->stage, j);
		if (j >= f->stage)
			add(f, KOLO_ACTION_BACKWARD_WEIGHT, f->stage, weights++);
	}
	while (weights < m)
		add(f, KOLO_ACTION_BACKWARD_WEIGHT, f->stage, weights++);
}

static const struct {
	const char *name;
	void (*fill)(struct filling *f);
} rules[] = {
	[KOLO_PIPELINE_GPIPE] = { "gpipe", gpipe },
	[KOLO_PIPELINE_1F1B] = { "1f1b", one_f_one_b },
	[KOLO_PIPELINE_INTERLEAVED] = { "interleaved", interleaved },
	[KOLO_PIPELINE_ZB_H1] = { "zb-h1", zb_h1 },
};

const char *kolo_pipeline_schedule_name(enum kolo_pipeline_schedule schedule)
{
	return (unsigned)schedule < sizeof(rules) / sizeof(rules[0]) ? rules[schedule].name : NULL;
}

int zero_schedule_fill(enum kolo_pipeline_schedule schedule,
		       const struct zero_pipeline_sizes *sizes, int stage, struct zero_list *out)
{
	struct filling f = { .sizes = *sizes, .stage = stage, .list = out };

	rules[schedule].fill(&f);
	return f.rc;
}
