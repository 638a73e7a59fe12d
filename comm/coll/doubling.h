/* The algorithm "doubling": ranks of a host add up what they have, then the hosts' sums are
 * exchanged with partners at distances 1, 2, 4, .. So a small reduction between hosts takes about
 * log2 of their number of hops. A barrier is the same with nothing to add. */
#ifndef COMM_COLL_DOUBLING_H
#define COMM_COLL_DOUBLING_H

#include "comm/core/comm.h"

extern const struct ko_algorithm_ops ko_doubling_ops;

/* Ranks that add up first: the largest power of two g for which ranks [k g, (k + 1) g) share a
 * host, for every k. At most 8: the first of them gets all the others' messages. */
int ko_doubling_group(const struct kolo_comm *c);

/* Bytes of a vector that it can do with such groups. */
size_t ko_doubling_room(int group);

/* Whom member `me` of `n` exchanges sums with at the distance `half`, a power of two. The members
 * [first, first + half) have the left sum, the next `right` ones the right sum; all of them get the
 * sum of both. If fewer have the right one, each of those gives it to several. Pure. */
struct ko_partners {
	int from;        /* the one that sends its sum here */
	int to, step, n; /* those that this one sends to: to, to + step, .., n of them */
	bool is_left;    /* this one's sum is the left one */
};
struct ko_partners ko_doubling_partners(int me, int n, int half);

/* If only `root` needs the sum: whom `me` sends its sum to, and at which distance: before that it
 * gets those of its partners at smaller distances. Root sends to nobody (-1), at the distance n.
 * Pure. */
int ko_doubling_parent(int me, int n, int root, int *half);

#endif
