/* How many boundary tensors a stage has room for. */
#ifndef ZERO_PARALLEL_ROOM_H
#define ZERO_PARALLEL_ROOM_H

#include "zero/parallel/lists.h"

enum { ZERO_CHANNELS = 2 }; /* queues: activations, gradients */

struct zero_rooms {
	int sends[ZERO_CHANNELS]; /* results: those that wait for their send, and one on its way */
	int receives[ZERO_CHANNELS]; /* those that are held from their receive to the last backward
				      */
};

struct zero_rooms zero_rooms_of(const struct zero_pipeline_sizes *sizes,
				const struct zero_list *list);

/* The message that a computation needs, or whose result it makes: false if there is none. */
bool zero_input_of(const struct zero_pipeline_sizes *sizes, const struct kolo_action *computation,
		   struct kolo_action *message);
bool zero_output_of(const struct zero_pipeline_sizes *sizes, const struct kolo_action *computation,
		    struct kolo_action *message);

/* Whether a computation is the last of its part and micro-batch: what was kept for it goes. */
static inline bool zero_ends(const struct kolo_action *a)
{
	return a->type == KOLO_ACTION_BACKWARD || a->type == KOLO_ACTION_BACKWARD_WEIGHT;
}

#endif
