/* What a rank looks after while it waits for a neighbour: whether the communicator has failed, whether the
 * neighbour is in the same operation, whether everyone still lives, and how long it has been. The error texts
 * about other ranks are written here; the operation's end tells them to everyone. */
#ifndef KO_WATCH_H
#define KO_WATCH_H

#include "comm.h"

struct ko_watch {
	struct kolo_comm *comm;
	const struct ko_desc *desc; /* the operation that waits */
	int peer;                   /* for this rank */
	const char *transport;      /* through this link */
	int64_t since, looked,
		last; /* ko_now_ms() of the beginning, the last look at the lifelines, the last turn */
};

void ko_watch_begin(struct ko_watch *w, struct kolo_comm *comm, const struct ko_desc *desc, int peer,
		    const char *transport);

/* Gives the core away for a moment and looks around. 0: try again. KOLO_EMISMATCH, KOLO_EPEER, KOLO_ETIMEDOUT,
 * or whatever another rank failed with. */
int ko_watch(struct ko_watch *w);

void ko_watch_end(struct ko_watch *w);

/* Before an operation: has the communicator failed, or a rank that it needs gone away? */
int ko_watch_health(struct kolo_comm *comm, const struct ko_desc *desc);

/* A slot of `peer` carried the tag of another operation. Returns KOLO_EMISMATCH. */
int ko_watch_mismatch(struct kolo_comm *comm, const struct ko_desc *desc, int peer, uint32_t tag);

#endif
