/* The first steps of making a communicator, and ending it. ko_comm_start makes the struct; then the
 * ranks learn who the others are (comm/bootstrap/boot.c, or split.c); ko_comm_connect connects the
 * lifelines and maps the roster. create.c does the rest. kolo_comm_destroy is in open.c too. */
#ifndef COMM_CREATE_OPEN_H
#define COMM_CREATE_OPEN_H

#include "comm/core/comm.h"

/* Makes a communicator that listens and is not connected yet, for the rank and nranks of *mine.
 * Fills pid, place and address of *mine. `log` is copied. While the communicator is made, its waits
 * end if `parent` fails (NULL: none). Errors: KOLO_ENOMEM, KOLO_ESYS. */
int ko_comm_start(int timeout_ms, const struct ko_log *log, struct ko_progress progress,
		  const struct ko_roster *parent, struct ko_entry *mine, struct kolo_comm **out);

/* Connects a communicator whose c->table has all ranks: ring, lifelines, roster. Blocks until the
 * deadline (ko_now_ms(), INT64_MAX: never). Errors: those of kolo_comm_create. */
int ko_comm_connect(struct kolo_comm *c, int64_t deadline);

/* Ends a communicator that could not be made, and reports `code` and the thread's error to the
 * other ranks. The thread's error stays as it is. */
void ko_comm_give_up(struct kolo_comm *c, int code);

#endif
