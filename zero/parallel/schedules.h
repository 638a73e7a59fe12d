/* The rules of the schedules: in which order each stage computes. */
#ifndef ZERO_PARALLEL_SCHEDULES_H
#define ZERO_PARALLEL_SCHEDULES_H

#include "zero/parallel/lists.h"

/* Appends an action to a list. Errors: KOLO_ENOMEM. */
int zero_list_add(struct zero_list *list, const struct kolo_action *action);

/* Fills the list of a stage with its computations. Errors: KOLO_ENOMEM. */
int zero_schedule_fill(enum kolo_pipeline_schedule schedule,
		       const struct zero_pipeline_sizes *sizes, int stage, struct zero_list *out);

#endif
