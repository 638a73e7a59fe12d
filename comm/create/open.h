/* Making and ending communicators. Making one is: say who I am (boot.c; split.c has another way), connect the lifelines,
 * map the roster; create.c goes on from there. kolo_comm_destroy is here too. */
#ifndef COMM_CREATE_OPEN_H
#define COMM_CREATE_OPEN_H

#include "comm/core/comm.h"

/* An unconnected communicator that listens, for the rank and nranks of *mine, which gets the rest of what it says of
 * itself. `log` is copied. Waits end when `parent`, NULL for none, fails. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int ko_comm_start(int timeout_ms, const struct ko_log *log, const struct ko_roster *parent,
		  struct ko_entry *mine, struct kolo_comm **out);

/* From c->table of all ranks to a connected communicator; blocks until the deadline (ko_now_ms(), INT64_MAX for
 * never). Errors: those of kolo_comm_create. */
int ko_comm_connect(struct kolo_comm *c, int64_t deadline);

/* Ends a communicator that could not be made; the others are told why. The thread's error stays as it is. */
void ko_comm_give_up(struct kolo_comm *c, int code);

#endif
