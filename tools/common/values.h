/* Elements by definition: the values of each type, and what a collective makes of them, one
 * element at a time. This is slow and shares no line with the library. ringbench and the tests
 * compare the library with it. */
#ifndef TOOLS_COMMON_VALUES_H
#define TOOLS_COMMON_VALUES_H

#include "kolo/kolo.h"

#include <stdbool.h>

enum {
	VALUES_NTYPES = KOLO_F64_I32 + 1,
	VALUES_NOPS = KOLO_MAXLOC + 1,
	VALUES_SIZE = 16 /* bytes of the largest element */
};

bool values_is_integer(enum kolo_type type);

/* Whether the type has the op: floating types have no bits and no truth, complex numbers no order,
 * and pairs nothing but that. */
bool values_has_op(enum kolo_type type, enum kolo_op op);

/* Whether it has sums with a factor. */
bool values_has_premul(enum kolo_type type);

/* An element made of some bits: integers are these, floating types are x. Of a complex number x is
 * the real part, and of a pair of a floating type the value. */
void values_make(enum kolo_type type, uint64_t bits, double x, void *out);

/* Equal bits; or NaN in the same parts, and equal bits in the others. */
bool values_same(enum kolo_type type, const void *a, const void *b);

/* The element at p, of a floating type. */
double values_decode(enum kolo_type type, const void *p);

/* The element of a floating type nearest to x, ties to even; F8E4M3 saturates. */
void values_encode(enum kolo_type type, double x, void *out);

/* A factor: f for floating and complex types, u (wrapping) for integers. */
struct values_scale {
	double f;
	uint64_t u;
};

/* What the first rank of an addition contributes: src, scaled for AVG and (premul) sums with a
 * factor, or 0 or 1 for a logical op. */
void values_first(enum kolo_type type, enum kolo_op op, bool premul, struct values_scale s,
		  const void *src, void *out);

/* acc = acc combined with src, rounded as the header promises. */
void values_combine(enum kolo_type type, enum kolo_op op, bool premul, struct values_scale s,
		    void *acc, const void *src);

/* Writes the element of a rank to `out`, and returns the factor that it is scaled with. */
typedef struct values_scale values_of_rank(const void *arg, int rank, void *out);

/* What the order "tree" makes of the elements of ranks [first, first + n), before the last step: of
 * one rank what values_first makes; else the sum of the first 2^k ranks, combined with that of the
 * rest, where 2^k is the largest power of two below n. */
void values_tree(enum kolo_type type, enum kolo_op op, bool premul, int first, int n,
		 values_of_rank *value, const void *arg, void *out);

/* Where a rank is in the order "grid": its group, and its number there. */
struct values_place {
	int group, number;
};

struct values_place values_grid_place(const struct kolo_comm *comm, int rank);

/* What the order "grid" makes of the elements of all ranks, before the last step, in a block that
 * belongs to `owner`. Of a group: added from the rank after the owner's number there round to it.
 * Then these sums are added from the group after the owner's round to it. */
void values_grid(const struct kolo_comm *comm, enum kolo_type type, enum kolo_op op, bool premul,
		 int owner, values_of_rank *value, const void *arg, void *out);

/* The rank with owner's number in the group of `root`. In the order "grid" a reduce adds up the
 * elements of `owner` as if they belonged to that rank. */
int values_grid_owner(const struct kolo_comm *comm, int owner, int root);

/* The last step: integers' AVG divides by nranks. */
void values_finish(enum kolo_type type, enum kolo_op op, int nranks, void *acc);

/* The factor that AVG over nranks uses. */
struct values_scale values_avg_scale(enum kolo_type type, int nranks);

#endif
