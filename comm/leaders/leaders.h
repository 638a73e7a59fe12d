/* Leaders: for a small vector, one rank of each group gets what the group's ranks give, and hands
 * out what comes of it. In between only leaders send messages. A leader is its group's first rank;
 * in root's group root leads. */
#ifndef COMM_LEADERS_LEADERS_H
#define COMM_LEADERS_LEADERS_H

#include "comm/core/run.h"

struct ko_leaders {
	const struct ko_run *run;
	const struct ko_shape
		*shape;       /* NULL: groups are of successive ranks; the last may be short */
	int size, ngroups;    /* size: ranks of a group */
	int root_group, root; /* root's group, and its number there; -1: there is no root */
	int group, me;        /* this rank's group, and its number there */

	/* Messages of one step */
	struct ko_run part; /* for the lanes */
	struct ko_transfer *all;
	size_t count;
};

/* The groups of an operation, from the shape or else of `size` ranks. No messages yet. */
struct ko_leaders ko_leaders_make(const struct ko_run *run, const struct ko_shape *shape, int size);

/* Makes room for as many messages as there are ranks, twice. Errors: KOLO_ENOMEM. */
int ko_leaders_begin(struct ko_leaders *l);

/* Ranks of a group, one of them by its number, and the leader. A group may be up to one turn below
 * 0 or above. */
int ko_leaders_ranks(const struct ko_leaders *l, int group);
int ko_leaders_rank(const struct ko_leaders *l, int group, int number);
int ko_leaders_leader(const struct ko_leaders *l, int group);

/* Does this rank lead? */
bool ko_leaders_leads(const struct ko_leaders *l);

/* Adds a message to the step, and does all that were added. Errors: those of ko_transfers_do. */
void ko_leaders_add(struct ko_leaders *l, int peer, bool sends, const void *buffer, size_t n);
int ko_leaders_do(struct ko_leaders *l);

/* A step: n elements of each rank come to its leader's `values`, by number in the group. A leader's
 * own are there already; another rank's are `own`. */
int ko_leaders_collect(struct ko_leaders *l, const void *own, char *values, size_t n);

/* A step: the first n elements of the leader's dst come to everyone's. */
int ko_leaders_hand_out(struct ko_leaders *l, void *dst, size_t n);

#endif
