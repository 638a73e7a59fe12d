/* Adding up the values of all ranks in the order of the tree (plan/sums.h), one value after the
 * other by rank number. */
#ifndef COMM_COLL_TREE_H
#define COMM_COLL_TREE_H

#include "comm/coll/addition.h"

enum { KO_TREE_LEVELS = 17 }; /* ko_tree_height of KO_MAX_RANKS */

/* Sums that wait for what they are added to. */
struct ko_tree {
	const struct ko_reducer *red;
	size_t n, size; /* elements of a value, bytes of one */
	char *out;      /* for the result */
	char *rooms;    /* for partial sums; NULL: they replace the left one of what they are of */
	int nranks, count, height;
	bool part; /* of the ranks: nothing is scaled or finished */
	const char *at[KO_TREE_LEVELS];
};

/* Bytes of the rooms that partial sums of n elements need. */
static inline size_t ko_tree_rooms(int nranks, size_t n, size_t size)
{
	return (size_t)ko_tree_height(nranks) * n * size;
}

/* Begins to add up the values of all ranks. out may be where one of the values is, and must not be
 * in the rooms. */
struct ko_tree ko_tree_begin(const struct ko_run *run, size_t n, char *rooms, void *out);

/* The same of `nranks` successive ranks, whose values are scaled already, without the last step. */
struct ko_tree ko_tree_begin_part(const struct ko_run *run, int nranks, size_t n, char *rooms,
				  void *out);

/* A room in which the next value may lie. */
char *ko_tree_room(const struct ko_tree *t);

/* The next rank's value, with that rank's factor. It stays where it is until all values are there;
 * without rooms it is overwritten. The last one makes the result. */
void ko_tree_add(struct ko_tree *t, const void *value, const union ko_scalar *s);

/* dst = the elements q of all vectors. The communicator's scratch is used. */
void ko_tree_add_up(const struct ko_run *run, const struct ko_vectors *v, struct ko_piece q,
		    void *dst);

/* The same of elements [0, n), where partial sums may overwrite the vectors. */
void ko_tree_add_in_place(const struct ko_run *run, const struct ko_vectors *v, size_t n,
			  void *dst);

#endif
