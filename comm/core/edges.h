/* A rank's two edges of the ring: the link from prev and the link to next. */
#ifndef COMM_CORE_EDGES_H
#define COMM_CORE_EDGES_H

#include "comm/core/run.h"

/* Makes *e, with links of these limits to e->next and from e->prev, of a rank at the place `here`:
 * chooses the transports, opens both ends here and joins them with the ends there. Both ranks must
 * have lifelines to this one, and do the same. Links that could not be joined stay in *e. Blocks
 * until the deadline (ko_now_ms(), INT64_MAX: never). Errors: those of kolo_comm_create. */
int ko_edges_make(struct kolo_comm *c, const struct ko_place *here, const struct ko_limits *limits,
		  struct ko_edges *e, int64_t deadline);

/* Makes c->edges, the ring. Lifelines and roster must be there. The same errors. */
int ko_edges_connect(struct kolo_comm *c, int64_t deadline);

/* Are there neighbours on different NUMA nodes of a host that share the memory of their slots? */
bool ko_edges_differ(const struct kolo_comm *c);

/* Near whom slots between such neighbours lie: "receiver" or "sender"; "" if there are none. */
const char *ko_edges_slots_near(const struct kolo_comm *c);

/* Moves the slots between such neighbours near that end. All ranks call it while nothing is under
 * way. Blocks. Errors: those of ko_wait; KOLO_ENOMEM. */
int ko_edges_settle(struct ko_run *run, enum ko_role near);

/* An end of a link here. It is to be joined with the end at `peer`, which has this address. */
struct ko_end {
	struct ko_link *link;
	int peer;
	struct ko_address address;
	bool joined;
};

/* Joins n ends, all at the same time: the next step of one may need a rank whose own next step
 * needs another end of this rank. Waits for one after the other, so the rank that it reports to
 * wait for is the one that keeps it waiting. Blocks. Errors: those of ko_wait_for, or one that
 * names the two ranks of a link that failed. */
int ko_edges_join(struct kolo_comm *c, struct ko_end *ends, int n);

/* Lets both links share a connection, if they join the same two ranks and the transport can do so.
 * Both ranks call it when the links are joined, before they use them. Errors: KOLO_ESYS. */
int ko_edges_pair(const struct kolo_comm *c, const struct ko_edges *e);

/* Chooses the transport from one rank to another: the one that rank 0 asked for (for all edges, or
 * for edges between hosts), else the best. Both ends choose the same. Errors: KOLO_ENOTSUP. */
int ko_edge_transport(const struct kolo_comm *c, int from, int to, const struct ko_link_ops **out);

/* A link to or from `peer` has failed with the thread's error. Adds the names of the two ranks to
 * its text. Returns `code`. */
int ko_edge_fail(const struct kolo_comm *c, const struct ko_link *link, int peer, int code);

#endif
