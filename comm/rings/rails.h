/* Links of a shape (plan/shape.h): from each rank to the next one of its group, and to the next one
 * of its rail. Each ring of them closes, whatever hosts the ranks are on. */
#ifndef COMM_RINGS_RAILS_H
#define COMM_RINGS_RAILS_H

#include "comm/core/run.h"

struct ko_rails {
	struct ko_edges group, rail;  /* no links in a ring of one rank */
	size_t group_slot, rail_slot; /* bytes: the first has several pieces, the second one */
	size_t piece;                 /* bytes of a block that move at a time, at most */
	/* Room for the sums of KO_RAILS_DEPTH rounds, in each a piece for every group; and
	 * ko_rails_spare bytes */
	char *sums;
	size_t memory; /* bytes of that room */
};

/* Rounds whose sums a group may have ready before the rail has taken the first of them. */
enum { KO_RAILS_DEPTH = 2 };

/* Whoever puts vectors into that room needs some bytes beside them: two elements for each rank,
 * since parts of a vector are rounded up, and a number and a pointer for each group. */
static inline size_t ko_rails_spare(const struct ko_shape *s)
{
	size_t groups = (size_t)s->ngroups;

	return 2 * groups * (size_t)s->size * KO_MAX_SIZE + (groups + 1) * sizeof(size_t) +
	       groups * sizeof(char *);
}

/* Bytes of the slots of the ring of all ranks, if there is a shape. */
size_t ko_rails_ring_slot(const struct kolo_comm *c);

/* Makes c->rails, or does nothing if there is no shape. Blocks until the deadline. Errors: those of
 * ko_edges_make; KOLO_ENOMEM. */
int ko_rails_connect(struct kolo_comm *c, int64_t deadline);

/* Do all ranks of a host send to others through one card, as far as is known? */
bool ko_rails_share_card(const struct kolo_comm *c);

/* Closes the links. NULL allowed. If the communicator has `failed`, it does not wait for what is
 * under way. */
void ko_rails_close(struct ko_rails *r, bool failed);

/* Bytes allocated. */
size_t ko_rails_memory(const struct kolo_comm *c);

/* Bytes of payload that this rank has sent and received through the links. */
uint64_t ko_rails_sent(const struct kolo_comm *c);
uint64_t ko_rails_received(const struct kolo_comm *c);

#endif
