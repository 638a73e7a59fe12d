/* Groups: calls that a thread makes between kolo_group_begin and kolo_group_end, and that are done together. */
#ifndef COMM_API_GROUP_H
#define COMM_API_GROUP_H

#include "comm/core/call.h"

/* Is one open on this thread? */
bool ko_group_is_open(void);

/* Leaves the call, whose arguments are right, to the end of the group. KOLO_ENOMEM. */
int ko_group_add(const struct ko_call *call);

/* 0, or KOLO_EINVAL: a group is open, where `function` can't be called. */
int ko_group_refuse(const struct kolo_comm *c, const char *function);

#endif
