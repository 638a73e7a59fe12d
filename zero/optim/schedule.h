/* The learning rate and the momentum of an update, by its number from 0; the public half is in
 * kolo_zero.h. */
#ifndef ZERO_OPTIM_SCHEDULE_H
#define ZERO_OPTIM_SCHEDULE_H

#include "kolo/kolo_zero.h"

#include <stdbool.h>

/* 0, or KOLO_EINVAL with the field that is wrong. */
int zero_schedule_check(const struct kolo_zero_schedule *schedule);

/* Of a schedule that was checked. Momentum is NaN if it is not cycled. */
double zero_schedule_lr(const struct kolo_zero_schedule *schedule, double lr, long step);
double zero_schedule_momentum(const struct kolo_zero_schedule *schedule, long step);

/* Whether the group's own lr has a say. */
static inline bool zero_schedule_takes_lr(const struct kolo_zero_schedule *schedule)
{
	return schedule->type == KOLO_ZERO_CONSTANT || schedule->type == KOLO_ZERO_WARMUP_COSINE;
}

#endif
