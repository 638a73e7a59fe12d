/* A pipeline is a list of actions for each stage. Files of this room share it. */
#ifndef ZERO_PARALLEL_LISTS_H
#define ZERO_PARALLEL_LISTS_H

#include "kolo/kolo_parallel.h"

#include <stdbool.h>

/* Its sizes. The model has stages * chunks parts. */
struct zero_pipeline_sizes {
	int stages, chunks, micros;
};

struct zero_list {
	struct kolo_action *actions;
	int n, room;
};

struct kolo_pipeline {
	struct zero_pipeline_sizes sizes;
	struct zero_list *lists; /* of each stage */
	int *buffers;            /* of each part */
};

static inline int zero_parts(const struct zero_pipeline_sizes *s)
{
	return s->stages * s->chunks;
}

static inline bool zero_is_message(enum kolo_action_type type)
{
	return type >= KOLO_ACTION_SEND_ACTIVATION && type <= KOLO_ACTION_RECV_GRADIENT;
}

static inline bool zero_is_send(enum kolo_action_type type)
{
	return type == KOLO_ACTION_SEND_ACTIVATION || type == KOLO_ACTION_SEND_GRADIENT;
}

/* The queue of a message: 0: activations, 1: gradients. */
static inline int zero_channel(enum kolo_action_type type)
{
	return type >= KOLO_ACTION_SEND_GRADIENT;
}

/* Whether the part sends or receives such messages: its neighbour exists, on another stage. */
static inline bool zero_has_message(const struct zero_pipeline_sizes *s, enum kolo_action_type type,
				    int part)
{
	bool forward = type == KOLO_ACTION_SEND_ACTIVATION || type == KOLO_ACTION_RECV_GRADIENT;

	return s->stages > 1 && (forward ? part < zero_parts(s) - 1 : part > 0);
}

/* The message at the other end of one: its type and its part. */
static inline struct kolo_action zero_counterpart(const struct kolo_action *a)
{
	static const enum kolo_action_type types[] = {
		[KOLO_ACTION_SEND_ACTIVATION] = KOLO_ACTION_RECV_ACTIVATION,
		[KOLO_ACTION_RECV_ACTIVATION] = KOLO_ACTION_SEND_ACTIVATION,
		[KOLO_ACTION_SEND_GRADIENT] = KOLO_ACTION_RECV_GRADIENT,
		[KOLO_ACTION_RECV_GRADIENT] = KOLO_ACTION_SEND_GRADIENT,
	};
	bool forward =
		a->type == KOLO_ACTION_SEND_ACTIVATION || a->type == KOLO_ACTION_RECV_GRADIENT;

	return (struct kolo_action){
		.type = types[a->type],
		.part = a->part + (forward ? 1 : -1),
		.micro = a->micro,
	};
}

/* Whether action i is a message, and the first one of its group. Computations have group -1. */
static inline bool zero_begins_group(const struct zero_list *list, int i)
{
	const struct kolo_action *a = &list->actions[i];

	return zero_is_message(a->type) && (i == 0 || a[-1].group != a->group);
}

/* The stage of a part. */
static inline int zero_stage_of(const struct zero_pipeline_sizes *s, int part)
{
	return part % s->stages;
}

#endif
