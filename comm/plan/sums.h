/* In which order the elements of all ranks are added. A communicator has one order. Algorithms that
 * realise it give the same bits. Pure. */
#ifndef COMM_PLAN_SUMS_H
#define COMM_PLAN_SUMS_H

enum ko_sums {
	/* An element of a block: from the rank after its owner round the ring to the owner */
	KO_SUMS_RING,
	/* The balanced tree over rank numbers. Of `n` ranks: the sum of the first 2^k plus that of
	 * the rest, 2^k being the largest power of two below n; both by the same rule */
	KO_SUMS_TREE,
	/* Of a shape (shape.h): in each group as the ring's, from the number after the owner's
	 * there round to it. Then these sums, from the group after the owner's round to it */
	KO_SUMS_GRID,
	KO_NSUMS
};

/* The name, for kolo_comm_attr.order. */
const char *ko_sums_name(enum ko_sums sums);

/* Finds an order by its name. Errors: KOLO_ENOTSUP, with the names of those that there are. */
int ko_sums_find(const char *name, enum ko_sums *out);

/* Going through the tree of nranks values by number, partial sums wait on a stack for what they are
 * added to. So many additions of its two uppermost follow when `count` values have come. */
int ko_tree_joins(int count, int nranks);

/* The most that are on that stack at a time. */
int ko_tree_height(int nranks);

#endif
