/* Lifelines: a socket from each rank to its neighbours and to rank 0. They carry what ranks
 * exchange while a communicator is made. Afterwards they carry the end: a goodbye if a rank leaves,
 * end of file if it dies.
 *
 * On one host they are Unix sockets with abstract names. That such a socket can be reached is part
 * of the proof that two ranks share a host. Between hosts they are TCP connections.
 *
 * If a communicator spans hosts, its ranks have no roster in common. Then lifelines also carry what
 * a rank posts while it waits, and the first cause of a failure, which each rank passes on. While a
 * communicator is made, ranks of one host say what they wait for in the same way. So a rank that
 * waits for one which itself waits does not blame it, but is told who is silent. */
#ifndef COMM_HEALTH_LIFELINE_H
#define COMM_HEALTH_LIFELINE_H

#include "comm/health/life.h"

enum { KO_LIFE_NEIGHBOURS = 6 }; /* at most: two in the ring, in the group and along the rail */

/* Starts to listen. Writes the socket's name and a fresh token into *mine. Until ko_lifelines_made
 * waits end if `parent` fails; it may be NULL. Waits call
 * `progress`. The caller owns *out; `log` and `progress` must outlive it. Errors:
 * KOLO_ENOMEM, KOLO_ESYS. */
int ko_lifelines_open(int rank, int nranks, const struct ko_log *log,
		      const struct ko_progress *progress, const struct ko_roster *parent,
		      struct ko_entry *mine, struct ko_lifelines **out);

/* Also listens for ranks of other hosts at the address `here`, and writes the address and port into
 * *mine. Does nothing if only this host can reach `here`. Errors: KOLO_ESYS. */
int ko_lifelines_listen(struct ko_lifelines *ll, const union ko_net *here, struct ko_entry *mine);

/* Connects to n neighbours, some of which may be the same rank, or this one; and to rank 0, which
 * connects to all. Neighbours are each other's. Blocks until all are connected, or until `deadline`
 * (ko_now_ms(); INT64_MAX: never). The table stays the caller's and must outlive the lifelines.
 *
 * Errors: KOLO_EPEER, KOLO_EUNREACH, KOLO_ETIMEDOUT, KOLO_ESYS. */
int ko_lifelines_connect(struct ko_lifelines *ll, const struct ko_entry *table,
			 const int *neighbours, int n, int64_t deadline);

/* Gives the lifelines the communicator's roster. Waits are posted in it, and end if it fails. own:
 * no other rank writes it, so what other ranks post is written into it here. */
void ko_lifelines_keep(struct ko_lifelines *ll, struct ko_roster *roster, bool own);

/* The communicator is made. The failure of its parent no longer matters. */
void ko_lifelines_made(struct ko_lifelines *ll);

/* Sends a message to a rank that has a lifeline. The descriptor fd travels with it unless it is -1.
 * Errors: KOLO_EPEER, KOLO_ETIMEDOUT, KOLO_ESYS. */
int ko_lifelines_send(struct ko_lifelines *ll, int rank, const struct ko_msg *msg, int fd);

/* Waits for the next message of `rank`, which must have a lifeline. The message must be of `type`
 * with `value`. *fd is the descriptor that came with it, which the caller closes, or -1.
 *
 * Errors: KOLO_EPEER, KOLO_ETIMEDOUT, KOLO_ESYS, or what that rank gave up with. */
int ko_lifelines_recv(struct ko_lifelines *ll, int rank, enum ko_msg_type type, int value,
		      int64_t deadline, struct ko_msg *out, int *fd);

/* Must the making end (kolo_id_abort)? Returns 0 or KOLO_EABORTED. */
int ko_lifelines_stopped(const struct ko_lifelines *ll);

/* Sends what this rank has posted to all its lifelines. */
void ko_lifelines_say(struct ko_lifelines *ll);

/* Sends what the communicator has failed with to all its lifelines. later: the cause came after the
 * communicator was made. From any thread. */
void ko_lifelines_fail(struct ko_lifelines *ll, int code, const char *text, bool later);

/* Dials a rank, which need not have a lifeline, without blocking. *fd is the connection: -1 at
 * first, and the caller's afterwards. The other rank gets it as a call, and may ignore it. `lanes`:
 * how many lanes this rank has ever joined to that one.
 *
 * Returns 0, or KO_EAGAIN: call again. *fd is then -1 if there was no answer, or nobody is there
 * any more; other functions find that out. Errors: KOLO_EUNREACH, KOLO_ESYS. */
int ko_lifelines_dial(struct ko_lifelines *ll, int rank, uint64_t lanes, int *fd);

/* Takes in the calls of other ranks, without blocking. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int ko_lifelines_listen_for_calls(struct ko_lifelines *ll);

/* Hands out the oldest call that was taken in. False: there is none. */
bool ko_lifelines_answer(struct ko_lifelines *ll, struct ko_incoming *out);

/* Does this rank have a lifeline to `rank`? */
bool ko_lifelines_hear(struct ko_lifelines *ll, int rank);

/* The rank that `rank` waits for, by what it has posted or said since `stale` (ko_now_ms()).
 * KO_NOBODY: it waits for none, or was silent since. */
int ko_lifelines_waits_for(struct ko_lifelines *ll, int rank, int64_t stale);

/* Reads what other ranks say, and notes which of them have left or died. Does not block. */
void ko_lifelines_look(struct ko_lifelines *ll);

/* Finds the first lifeline from number *k on whose rank has left or died, and sets *k to its
 * number. NULL: there is none. Quick while no rank is gone. */
const struct ko_life *ko_lifelines_gone(const struct ko_lifelines *ll, int *k);

/* Has a rank without a lifeline died, or closed its end of the communicator? False for a rank that
 * has a lifeline. Takes some system calls. */
bool ko_lifelines_lost(struct ko_lifelines *ll, int rank);

/* Says goodbye to all lifelines, with code and text if there is a cause (code 0: none). Then closes
 * and frees. NULL is allowed. */
void ko_lifelines_close(struct ko_lifelines *ll, int code, const char *text);

/* The same for a communicator that could not be made: ranks that have called and were not heard yet
 * learn the cause too. */
void ko_lifelines_give_up(struct ko_lifelines *ll, int code, const char *text);

/* ---- For lifeline_connect.c alone ------------------------------------------------------------ */

/* The lifeline to `rank`; NULL: there is none. */
struct ko_life *ko_life_find(struct ko_lifelines *ll, int rank);

/* Reports that the rank has ended too early, or what it gave up with. If it may have given up
 * because of another rank, it first waits a moment for what others know. */
int ko_life_gone_early(struct ko_lifelines *ll, int rank);

/* Reports that connecting to or exchanging with `rank` failed with errno; `what` says what was
 * tried. Returns the code that fits errno. */
int ko_life_lost(struct ko_lifelines *ll, int rank, const char *what);

/* A step of waiting for `rank`, about every KO_LIFE_STEP_MS: says that this rank waits, and hears
 * what others say. Returns 0: go on, or an error: what ended the wait. */
int ko_life_step(struct ko_lifelines *ll, int rank);

/* This rank no longer waits. */
void ko_life_waited(struct ko_lifelines *ll);

#endif
