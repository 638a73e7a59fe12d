/* Queues: threads that do work in the order in which it was put in, and the marks (events) that are set between two
 * pieces of it. What the work is they don't know. */
#ifndef KO_QUEUE_H
#define KO_QUEUE_H

#include "error.h"

/* A piece of work gets a copy of the argument that was put in. What it returns is 0 or a failure of the queue's, with
 * the thread's error text. */
typedef int ko_work_fn(void *arg);

enum { KO_WORK_ARG = 16 }; /* bytes of an argument, at most */

/* Puts run(copy of arg) in at the end; never blocks for the work itself. KOLO_ENOMEM. */
int ko_queue_put(struct kolo_queue *q, ko_work_fn *run, const void *arg, size_t len);

#endif
