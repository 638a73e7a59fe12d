/* Who owns what, and what travels together. Arithmetic alone, so that a test can try every shape
 * and number of ranks.
 *
 * A tensor of n elements is cut into nranks chunks of c = ceil(n / nranks) elements. Rank r owns
 * chunk r. The last chunks may be short or empty.
 *
 * Collectives add an element in an order that its owner determines. So a bucket is owner-major: it
 * holds the same part [first, first + n) of the chunks of all ranks, rank 0's first. Then an
 * element is added in the same order in any bucket. */
#ifndef ZERO_CORE_LAYOUT_H
#define ZERO_CORE_LAYOUT_H

#include "kolo/kolo.h"

#include <stdbool.h>

/* Elements that a bucket of gradients must have room for: a page of floats, for a reduction has its
 * price. */
enum { ZERO_LEAST_BUCKET = 1024 };

struct zero_part {
	size_t first, n;
};

/* Elements of each rank's chunk of a tensor of n elements; the last chunks may end earlier. */
size_t zero_chunk(size_t n, int nranks);

/* The elements of a tensor of n that a rank owns. first is n if it owns none. */
struct zero_part zero_owned(size_t n, int nranks, int rank);

/* Elements [first, first + n) of the chunk of `rank`, as far as the tensor of `len` elements
 * goes. */
struct zero_part zero_part_of(size_t len, int nranks, int rank, size_t first, size_t n);

/* Where two parts overlap. */
struct zero_part zero_part_meet(struct zero_part a, struct zero_part b);

/* Elements [first, first + n) of every rank's chunk of a tensor; `at` of each rank's part of the
 * bucket. */
struct zero_piece {
	int tensor;
	size_t first, n, at;
};

/* What one operation moves: pieces [first, first + npieces) of the plan, n elements of each rank,
 * all of one type. */
struct zero_bucket {
	int first, npieces;
	size_t n;
	enum kolo_type type;
	bool whole; /* it is one whole tensor, which can be gathered where it lies */
};

/* What a plan is made of: a tensor, in the order that they shall travel in. */
struct zero_item {
	int tensor;
	size_t chunk;
	enum kolo_type type;
};

struct zero_plan {
	struct zero_piece *pieces;
	struct zero_bucket *buckets;
	int npieces, nbuckets;
	size_t largest;         /* bytes of a rank's part in the largest bucket; */
	size_t largest_partial; /* and in the largest that is not whole */
};

/* Fills *out, which is zeroed, with buckets of at most `limit` >= 1 elements of each rank; tensors
 * with chunks of at least `alone` elements share theirs with no other tensor. Larger ones than a
 * bucket are cut. Errors: KOLO_ENOMEM. */
int zero_plan_make(struct zero_plan *out, const struct zero_item *items, int nitems, size_t limit,
		   size_t alone);

/* Whether the plan is one of these items and this limit:
 * - The pieces of a tensor are its chunk, from the first element to the last, in the items' order.
 * - A bucket's pieces fill it without gaps. Buckets have all pieces, at most `limit` elements of
 *   each rank, and one type.
 * - `whole` is a tensor alone. `largest` and `largest_partial` are those of the buckets. */
bool zero_layout_is_valid(const struct zero_plan *plan, const struct zero_item *items, int nitems,
			  size_t limit);

void zero_plan_free(struct zero_plan *plan);

#endif
