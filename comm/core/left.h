/* Calls that are left for later, to a queue or a group. */
#ifndef COMM_CORE_LEFT_H
#define COMM_CORE_LEFT_H

#include "comm/core/call.h"

/* A call left for later, with copies of what the caller may change or free. */
struct ko_left {
	struct ko_left *next;
	struct ko_call call;   /* its counts and received point to `counts` below */
	struct ko_reducer red; /* as the op was at the time of the call */
	struct ko_made made;   /* of red, if it calls a function of the program */
	size_t counts[];
};

/* Bytes of a struct ko_left for this call. */
size_t ko_left_len(const struct ko_call *call);

/* Fills `left`, which has ko_left_len bytes. */
void ko_left_init(struct ko_left *left, const struct ko_call *call);

/* Sets the error for a call that could not be left because there is no memory. Returns
 * KOLO_ENOMEM. */
int ko_left_fail(const struct ko_call *call);

#endif
