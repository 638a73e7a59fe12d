/* Groups: calls that a thread makes between kolo_group_begin and kolo_group_end. They are done
 * together, at the end. */
#ifndef COMM_API_GROUP_H
#define COMM_API_GROUP_H

#include "comm/core/call.h"

/* Is a group open on this thread? */
bool ko_group_is_open(void);

/* Leaves the call, whose arguments have been checked, to the end of the group that is open. Errors:
 * KOLO_ENOMEM. */
int ko_group_add(const struct ko_call *call);

/* Refuses a public function that can't be called inside a group, nor by a child of fork. Returns 0,
 * or KOLO_EINVAL if a group is open or this process is such a child. */
int ko_group_refuse(const struct kolo_comm *c, const char *function);

#endif
