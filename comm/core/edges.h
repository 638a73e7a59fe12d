/* A rank's two edges of the ring: the links from prev and to next. */
#ifndef COMM_CORE_EDGES_H
#define COMM_CORE_EDGES_H

#include "comm/core/run.h"

/* Makes c->edges: chooses the transports, makes both ends here and joins them with the neighbours'; blocks until the deadline
 * (ko_now_ms(), INT64_MAX for never). Lifelines and roster must be there. Errors: those of kolo_comm_create. */
int ko_edges_connect(struct kolo_comm *c, int64_t deadline);

/* Do any two neighbours live on different NUMA nodes of a host, and share their slots? */
bool ko_edges_differ(const struct kolo_comm *c);

/* "receiver", "sender": near whom slots between such lie; "" where there are none. */
const char *ko_edges_slots_near(const struct kolo_comm *c);

/* On all ranks, when nothing is under way: slots between such neighbours get to lie near that end. Errors: those of ko_wait,
 * KOLO_ENOMEM. */
int ko_edges_settle(struct ko_run *run, enum ko_role near);

/* Moves one end on towards the one at `peer`, which has this address; *done when they are joined, and then nothing more.
 * 0, or an error with the names of the two ranks. */
int ko_edge_join(const struct kolo_comm *c, struct ko_link *link, int peer, const struct ko_address *address,
		 bool *done);

/* The transport from one rank to another: what rank 0 asked for, for all edges or for those between hosts; else the best.
 * Both ends decide alike. KOLO_ENOTSUP. */
int ko_edge_transport(const struct kolo_comm *c, int from, int to, const struct ko_link_ops **out);

/* A failure of a link to or from `peer`, whose text is the thread's, gets the names of the two ranks. Returns `code`. */
int ko_edge_fail(const struct kolo_comm *c, const struct ko_link *link, int peer, int code);

#endif
