/* Calls of kolo_comm_create that have not returned, so that another thread can end them
 * (kolo_id_abort). */
#ifndef COMM_CREATE_JOINING_H
#define COMM_CREATE_JOINING_H

#include "kolo/kolo.h"

#include <stdatomic.h>

struct ko_joining {
	struct ko_joining *next;
	const struct kolo_id *id;
	_Atomic int stopped;
};

/* Lists a call on `id`, until ko_joining_end. NULL: nobody can end it. */
void ko_joining_begin(struct ko_joining *joining, const struct kolo_id *id);
void ko_joining_end(struct ko_joining *joining);

#endif
