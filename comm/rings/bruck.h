/* Bruck's all-gather: every rank gets everyone's vector in log2(nranks) hops. Each hop doubles what
 * a rank has. The hops need links of their own: from each rank to those 2, 4, 8.. further on. Their
 * slots are small. They are made only if no two ranks share a host. */
#ifndef COMM_RINGS_BRUCK_H
#define COMM_RINGS_BRUCK_H

#include "comm/core/run.h"

enum {
	KO_BRUCK_RANKS = 256,     /* with more ranks there are no such links */
	KO_BRUCK_SLOT = 32 << 10, /* bytes of a slot */
};

struct ko_bruck;

/* Makes and connects the links, or does nothing if this communicator has none. Blocks. The ring
 * must be connected. Errors: those of kolo_comm_create. */
int ko_bruck_connect(struct kolo_comm *c);

/* Closes the links. NULL allowed. If the communicator has `failed`, it does not wait for what is
 * under way. */
void ko_bruck_close(struct ko_bruck *s, bool failed);

/* Hops until every rank has everyone's vector: through these links, or else round the ring. */
int ko_bruck_hops(const struct kolo_comm *c);

/* The longest vector, in bytes, that the links' slots can carry. SIZE_MAX if there are no links. */
size_t ko_bruck_room(const struct kolo_comm *c);

/* Gathers n elements of each rank. `memory` has room for all, by rank, and holds this rank's. If
 * there are no links of its own, the vectors go round the ring. Errors: those of ko_wait, and the
 * links'. */
int ko_bruck_gather(struct ko_run *run, char *memory, size_t n);

/* Bytes allocated for the links' slots. */
size_t ko_bruck_memory(const struct kolo_comm *c);

/* Bytes of payload that this rank sent and received through the links. */
uint64_t ko_bruck_sent(const struct kolo_comm *c);
uint64_t ko_bruck_received(const struct kolo_comm *c);

#endif
