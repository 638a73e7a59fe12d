/* Lifelines: a socket from each rank to its two neighbours and to rank 0. They carry what is exchanged while a
 * communicator is made, and afterwards the end: a goodbye when a rank leaves, end of file when it dies. On one host they
 * are Unix sockets with abstract names; that one could be reached is part of the proof that two ranks share a host. Between
 * hosts they are TCP connections. Where ranks of several hosts have no roster in common they also carry what a rank posts
 * while it waits, and the first cause of a failure, which everyone passes on. */
#ifndef COMM_HEALTH_LIFELINE_H
#define COMM_HEALTH_LIFELINE_H

#include "comm/health/life.h"
#include "comm/plan/ring.h"

/* Starts to listen and writes the socket's name and a fresh token into *mine. Waits end when `parent` (may be NULL)
 * fails. The caller owns *out; log must outlive it. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int ko_lifelines_open(int rank, int nranks, const struct ko_log *log, const struct ko_roster *parent,
		      struct ko_entry *mine, struct ko_lifelines **out);

/* Also listens for ranks of other hosts, at the address `here`, and writes that into *mine; not where only this host
 * reaches it. Errors: KOLO_ESYS. */
int ko_lifelines_listen(struct ko_lifelines *ll, const union ko_net *here, struct ko_entry *mine);

/* Connects to both neighbours and rank 0 (rank 0: to all); blocks until they are there or `deadline`
 * (ko_now_ms(), INT64_MAX for never). The table stays the caller's and must outlive the lifelines. Errors:
 * KOLO_EPEER, KOLO_EUNREACH, KOLO_ETIMEDOUT, KOLO_ESYS. */
int ko_lifelines_connect(struct ko_lifelines *ll, const struct ko_entry *table, const struct ko_ring *ring,
			 int64_t deadline);

/* From here on waits end when `roster` fails, not the one given before. */
void ko_lifelines_follow(struct ko_lifelines *ll, const struct ko_roster *roster);

/* `roster` is this rank's own, which no other rank writes: what they say goes there. */
void ko_lifelines_keep(struct ko_lifelines *ll, struct ko_roster *roster);

/* Sends to a rank that has a lifeline; fd goes along unless it is -1. Errors: KOLO_EPEER, KOLO_ETIMEDOUT,
 * KOLO_ESYS. */
int ko_lifelines_send(struct ko_lifelines *ll, int rank, const struct ko_msg *msg, int fd);

/* Waits for the next message of `rank`, which must be of `type` with `value`. *fd is the descriptor that came
 * along, the caller's to close, or -1. The rank must have a lifeline. Errors: KOLO_EPEER, KOLO_ETIMEDOUT, KOLO_ESYS,
 * or what the rank gave up with. */
int ko_lifelines_recv(struct ko_lifelines *ll, int rank, enum ko_msg_type type, int value, int64_t deadline,
		      struct ko_msg *out, int *fd);

/* Where the roster is this rank's own: tells those at the other ends what it has posted. */
void ko_lifelines_say(struct ko_lifelines *ll);

/* The same with what the communicator has failed with; later: by what was done after it had been made. From any thread. */
void ko_lifelines_fail(struct ko_lifelines *ll, int code, const char *text, bool later);

/* Calls a rank, with a lifeline or without, without blocking: *fd, -1 at first and the caller's, is the connection; what the
 * other one does with it is its business. `lanes`: that this rank has ever joined to that one. KO_EAGAIN: to be called again; where
 * *fd is -1 there was no answer, or there is nobody any more: others find out. KOLO_EUNREACH, KOLO_ESYS. */
int ko_lifelines_dial(struct ko_lifelines *ll, int rank, uint64_t lanes, int *fd);

/* Takes in the calls of others, without blocking. KOLO_ENOMEM, KOLO_ESYS. */
int ko_lifelines_listen_for_calls(struct ko_lifelines *ll);

/* The oldest of the calls taken in; false: there are none. */
bool ko_lifelines_answer(struct ko_lifelines *ll, struct ko_incoming *out);

/* Is there a lifeline to the rank? */
bool ko_lifelines_hear(struct ko_lifelines *ll, int rank);

/* Looks, without blocking, which ranks have left or died, and at what they say. */
void ko_lifelines_look(struct ko_lifelines *ll);

/* The first lifeline from the k-th on whose rank has left or died, *k its number; NULL when there is none, which is
 * quick to say while all are there. */
const struct ko_life *ko_lifelines_gone(const struct ko_lifelines *ll, int *k);

/* Has the rank, to which there is no lifeline, died or closed its end of the communicator? Some system calls; false for
 * a rank that has one. */
bool ko_lifelines_lost(struct ko_lifelines *ll, int rank);

/* Says goodbye, with code and text where there is a cause (code 0: none), and frees. NULL allowed. */
void ko_lifelines_close(struct ko_lifelines *ll, int code, const char *text);

/* ---- For lifeline_connect.c alone ------------------------------------------------------------------------ */

/* The lifeline to the rank; NULL: there is none. */
struct ko_life *ko_life_find(struct ko_lifelines *ll, int rank);

/* The rank has ended where it must not. Returns KOLO_EPEER. */
int ko_life_gone_early(struct ko_lifelines *ll, int rank);

/* A call to or from `rank` failed with errno. Returns the code that says so best. */
int ko_life_lost(struct ko_lifelines *ll, int rank, const char *what);

/* What those have failed with whose failure ends waits; 0: nothing. */
int ko_life_check_parent(const struct ko_lifelines *ll);

#endif
