/* Shortcuts: where no two ranks share a host, links from each rank to those 2, 4, 8... further on, small ones. With them
 * everyone's vector gets everywhere in log2(nranks) hops, of which each doubles what a rank has (Bruck's all-gather). */
#ifndef COMM_COLL_BRUCK_H
#define COMM_COLL_BRUCK_H

#include "comm/core/run.h"

enum {
	KO_BRUCK_RANKS = 256,     /* of more there are none */
	KO_BRUCK_SLOT = 32 << 10, /* bytes of a slot */
};

struct ko_bruck;

/* Makes and joins them where there can be some, else does nothing. Blocks; the ring must be there. Errors: those of
 * kolo_comm_create. */
int ko_bruck_connect(struct kolo_comm *c);

/* NULL allowed. Of a communicator that has failed nobody waits for what is under way. */
void ko_bruck_close(struct ko_bruck *s, bool failed);

/* Hops until everyone has everyone's vector: with shortcuts, or round the ring. */
int ko_bruck_hops(const struct kolo_comm *c);

/* The longest vector, in bytes, that can be taken through them. */
size_t ko_bruck_room(const struct kolo_comm *c);

/* `memory` has room for n elements of each rank, by rank, and has this rank's: afterwards it has all. Where there are no
 * shortcuts they go round the ring. */
int ko_bruck_gather(struct ko_run *run, char *memory, size_t n);

/* Bytes allocated for slots. */
size_t ko_bruck_memory(const struct kolo_comm *c);

/* Payload that went through them. */
uint64_t ko_bruck_sent(const struct kolo_comm *c);
uint64_t ko_bruck_received(const struct kolo_comm *c);

#endif
