/* Where bytes live and how they are combined: host memory. The loops are in kernels.c, compiled once for each
 * instruction set; the best one that the processor has is chosen at run time. */
#ifndef COMM_REDUCE_REDUCE_H
#define COMM_REDUCE_REDUCE_H

#include "kolo/kolo.h"

#include <stdbool.h>

enum {
	KO_NTYPES = KOLO_F8E5M2 + 1,
	KO_NOPS = KOLO_AVG + 1,
};

/* A factor or divisor in the type that the loop computes in. */
union ko_scalar {
	float f32;    /* F32 and everything narrower */
	double f64;   /* F64 */
	uint64_t u64; /* integers */
};

/* out[i] = in[i] combined with own[i]. out may be in or own; otherwise the three don't overlap. No alignment. */
typedef void ko_combine_fn(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s);

/* out[i] = some function of src[i]. out may be src; otherwise they don't overlap. No alignment. */
typedef void ko_fill_fn(void *out, const void *src, size_t n, const union ko_scalar *s);

/* Copies `len` bytes past the caches, which helps where the reader is far away or nobody reads soon; ordered before
 * all stores that follow. An ordinary copy where the machine has no such stores. */
typedef void ko_stream_fn(void *out, const void *src, size_t len);

/* The ways of combining that have a loop; sum_scaled is in + own * s. */
enum ko_combine { KO_SUM, KO_PROD, KO_MIN, KO_MAX, KO_SUM_SCALED, KO_NCOMBINES };

struct ko_kernels {
	ko_combine_fn *combine[KO_NTYPES][KO_NCOMBINES];
	ko_fill_fn *copy[KO_NTYPES];
	ko_fill_fn *scale[KO_NTYPES];  /* src * s */
	ko_fill_fn *divide[KO_NTYPES]; /* src / s.u64, towards zero; copies what is not an integer */
	/* Between floats and elements of the floating types up to 32 bits, multiplied by s on the way; NULL for others. Other
	 * sizes: out must not be src */
	ko_fill_fn *to_float[KO_NTYPES], *of_float[KO_NTYPES];
	ko_stream_fn *stream;
};

/* All that this build and this processor have, the plain one first, the fastest last, then NULL. */
const struct ko_kernels *const *ko_kernels_list(void);

/* What a collective does to elements: the first rank of an addition sends first(src); every further one makes
 * combine(partial, src); the last one then finish(result), in place. Never NULL. */
struct ko_reducer {
	ko_fill_fn *first;
	ko_combine_fn *combine;
	ko_fill_fn *finish; /* the plain copy, which does nothing in place, where nothing is left to do */
	union ko_scalar s;
	/* The same for who has other loops: which way combine is, and whether first scales, and finish divides */
	enum ko_combine how;
	bool scales, divides;
};

/* For one of the five ops over nranks. */
struct ko_reducer ko_reducer_make(enum kolo_type type, enum kolo_op op, int nranks);

/* For a sum of elements multiplied by *scalar, an element of `type`. */
struct ko_reducer ko_reducer_premul(enum kolo_type type, const void *scalar);

/* The plain copy of elements of `type`, as a fill function. */
ko_fill_fn *ko_copy(enum kolo_type type);

/* Results that are streamed go through the first-level cache, a whole number of elements and so many bytes at a time:
 * more of them were slower by a tenth. */
enum { KO_STREAM_STEP = 2048 };

/* The stream of the best kernels. */
void ko_stream_copy(void *out, const void *src, size_t len);

/* This core is about to write `len` bytes that another one has had: has the first lines of them brought here, to be
 * written, all at once. Stores would wait for them one after the other. The earlier before the stores the better. */
enum { KO_EXPECT_ONE_WAY = 2 << 10 }; /* at most, where nothing comes back: see comm/README.md */
static inline void ko_expect_to_write(const void *out, size_t len)
{
	enum { LINE = 64, MOST = 4 << 10 }; /* further ones come as fast by themselves */

	for (size_t at = 0; at < len && at < MOST; at += LINE) {
#ifdef __x86_64__ /* as its only owner; __builtin_prefetch would ask for a copy to read on most x86 */
		__asm__ volatile("prefetchw %0" : : "m"(((const char *)out)[at]));
#else
		__builtin_prefetch((const char *)out + at, 1);
#endif
	}
}

/* Orders all streaming stores of this thread before what it stores later, which a release store alone does not. It waits
 * for them: once for a slot or an operation, not for each piece. */
void ko_stream_fence(void);

/* fn and combine for elements of `size` bytes, with streaming stores to out, which overlaps neither input. */
void ko_stream_fill(ko_fill_fn *fn, void *out, const void *src, size_t n, size_t size,
		    const union ko_scalar *s);
void ko_stream_combine(ko_combine_fn *combine, void *out, const void *in, const void *own, size_t n,
		       size_t size, const union ko_scalar *s);

#endif
