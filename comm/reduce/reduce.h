/* How elements in host memory are combined, copied and converted. The loops are in kernels.c, which
 * is compiled once for each instruction set. The best ones for this processor are chosen at run
 * time. */
#ifndef COMM_REDUCE_REDUCE_H
#define COMM_REDUCE_REDUCE_H

#include "kolo/kolo.h"

#include <stdbool.h>
#include <string.h>

enum {
	KO_NTYPES = KOLO_F64_I32 + 1, /* those that have a row in the tables */
	KO_NOPS = KOLO_MAXLOC + 1,
};

/* A function of the program, and what it combines (kolo_op_create). */
struct ko_made {
	kolo_combine_fn *combine;
	void *arg;
	size_t size; /* bytes of an element */
};

/* What a loop needs besides elements. Mostly a factor or divisor, in the type in which the loop
 * computes. */
union ko_scalar {
	float f32;    /* for F32 and all narrower floating types, and C64 */
	double f64;   /* for F64, and C128 */
	uint64_t u64; /* for integers */
	/* For what calls a function of the program. Another rank's is another process' */
	const struct ko_made *made;
};

/* out[i] = in[i] combined with own[i]. out may be in or own; otherwise the three must not overlap.
 * Buffers need no alignment. */
typedef void ko_combine_fn(void *out, const void *in, const void *own, size_t n,
			   const union ko_scalar *s);

/* out[i] = some function of src[i]. out may be src; otherwise they must not overlap. Buffers need
 * no alignment. */
typedef void ko_fill_fn(void *out, const void *src, size_t n, const union ko_scalar *s);

/* Copies `len` bytes past the caches: faster if the reader is far away or nobody reads soon.
 * ko_stream_fence orders it before later stores. It is an ordinary copy on a machine without such
 * stores. */
typedef void ko_stream_fn(void *out, const void *src, size_t len);

/* The ways of combining. KO_SUM_SCALED is in + own * s. The logical ones, KO_LAND to KO_LXOR, take
 * what is not 0 for 1. KO_MADE calls a function of the program, and is in no table. */
enum ko_combine {
	KO_SUM,
	KO_PROD,
	KO_MIN,
	KO_MAX,
	KO_SUM_SCALED,
	KO_BAND,
	KO_BOR,
	KO_BXOR,
	KO_LAND,
	KO_LOR,
	KO_LXOR,
	KO_MINLOC,
	KO_MAXLOC,
	KO_NCOMBINES,
	KO_MADE = KO_NCOMBINES
};

static inline bool ko_is_logical(enum ko_combine how)
{
	return how >= KO_LAND && how <= KO_LXOR;
}

struct ko_kernels {
	ko_combine_fn *combine[KO_NTYPES][KO_NCOMBINES]; /* NULL: the type has no such way */
	ko_fill_fn *copy[KO_NTYPES];
	ko_fill_fn *scale[KO_NTYPES]; /* src * s; NULL for pairs */
	/* src / s.u64, towards zero; a plain copy for types that are no integers */
	ko_fill_fn *divide[KO_NTYPES];
	ko_fill_fn *truth[KO_NTYPES]; /* src != 0; NULL for types that are no integers */
	/* Floating types of at most 32 bits to float and back, times s; NULL for other types. If
	 * the sizes differ, out must not be src */
	ko_fill_fn *to_float[KO_NTYPES], *of_float[KO_NTYPES];
	ko_stream_fn *stream;
	ko_stream_fn *copy_by_loop;
};

/* The tables that this build has and this processor can run: the plain one first, the fastest last,
 * then NULL. */
const struct ko_kernels *const *ko_kernels_list(void);

/* What a collective does to elements. The first rank of an addition sends first(src). Each further
 * rank makes combine(partial, src). The last one then makes finish(result), in place. The functions
 * are never NULL. */
struct ko_reducer {
	ko_fill_fn *first;
	ko_combine_fn *combine;
	/* a plain copy, which does nothing in place, if nothing is left to do. A plain copy is that
	 * of ko_copy, here and in `first` */
	ko_fill_fn *finish;
	union ko_scalar s;
	/* The same for code that has its own loops, as GPUs do. `scales`: `first` is more than a
	 * copy. It multiplies by s, or makes 0 or 1 if `how` is logical. `divides`: `finish`
	 * divides by s. */
	enum ko_combine how;
	bool scales, divides;
};

static inline bool ko_type_is_integer(enum kolo_type type)
{
	return type <= KOLO_U64 || type == KOLO_I16 || type == KOLO_U16;
}

static inline bool ko_type_is_complex(enum kolo_type type)
{
	return type == KOLO_C64 || type == KOLO_C128;
}

/* Whether a type, which has a row in the tables, can be combined so. */
static inline bool ko_type_combines(enum kolo_type type, enum ko_combine how)
{
	if (how >= KO_MINLOC)
		return type >= KOLO_I32_I32;
	if (how >= KO_BAND)
		return ko_type_is_integer(type);
	if (how == KO_MIN || how == KO_MAX)
		return type < KOLO_C64;
	return type < KOLO_I32_I32;
}

/* Is it of kolo_type_bytes? Such a type has no row in any table. */
static inline bool ko_type_is_bytes(enum kolo_type type)
{
	return (unsigned)type >= KO_NTYPES;
}

/* Whether a type has an op of enum kolo_op. */
bool ko_type_has_op(enum kolo_type type, enum kolo_op op);

/* Whether its elements can be multiplied by one of them before they are added. */
bool ko_type_has_premul(enum kolo_type type);

/* The reducer of one of the ops of enum kolo_op, which the type has, over nranks ranks. */
struct ko_reducer ko_reducer_make(enum kolo_type type, enum kolo_op op, int nranks);

/* The reducer of a sum of elements that are first multiplied by *scalar, an element of `type`. */
struct ko_reducer ko_reducer_premul(enum kolo_type type, const void *scalar);

/* The reducer that calls a function of the program. *made must live as long. */
struct ko_reducer ko_reducer_of_made(const struct ko_made *made);

/* The same for an order in which partial sums are added to each other: combine(a, b) adds what
 * `first` has made of values, and multiplies nothing. */
struct ko_reducer ko_reducer_of_sums(struct ko_reducer r, enum kolo_type type);

/* The plain copy of elements of `type`, as a fill function. */
ko_fill_fn *ko_copy(enum kolo_type type);

/* Results that are streamed pass through the first-level cache, this many bytes at a time, rounded
 * down to whole elements. Larger steps were slower by a tenth. */
enum { KO_STREAM_STEP = 2048 };

/* Streams `len` bytes with the best kernels: see ko_stream_fn. */
void ko_stream_copy(void *out, const void *src, size_t len);

/* Some ways between cores were measured on Intel's processors alone. */
bool ko_is_intel(void);

/* Is ko_expect_to_write worth while for a payload of so many bytes, if nothing comes back from the
 * rank that reads it (why: D22, D211 in comm/DECISIONS.md)? */
bool ko_expects_one_way(size_t bytes);

/* Bytes that ko_expect_to_write fetches at most: further lines come as fast by themselves. */
enum { KO_EXPECT_MOST = 4 << 10 };

/* Call this as long as possible before this core writes `len` bytes that another core has used. It
 * fetches the first cache lines for writing, all at once. Without it the stores would wait for them
 * one after the other. */
static inline void ko_expect_to_write(const void *out, size_t len)
{
	enum { LINE = 64 };

	for (size_t at = 0; at < len && at < KO_EXPECT_MOST; at += LINE) {
#ifdef __x86_64__ /* fetches it for writing; __builtin_prefetch would fetch a copy to read on most \
		     x86 */
		__asm__ volatile("prefetchw %0" : : "m"(((const char *)out)[at]));
#else
		__builtin_prefetch((const char *)out + at, 1);
#endif
	}
}

/* Copies `len` bytes by a loop over vectors. The buffers must not overlap. */
void ko_copy_by_loop(void *out, const void *src, size_t len);

/* Would memcpy be slow? It is if the stores of "rep movsb" go to places that lie in their page a
 * little behind the loads (why: D194 in comm/DECISIONS.md). */
static inline bool ko_memcpy_is_slow(const void *out, const void *src, size_t len)
{
	enum { LINE = 64, PAGE = 4096, SHORT = 2 << 10 }; /* for SHORT it uses vectors */
	size_t behind = ((uintptr_t)out - (uintptr_t)src) % PAGE;

	return len > SHORT && behind > 0 && behind < LINE;
}

/* Copies `len` bytes. The buffers must not overlap. */
static inline void ko_copy_bytes(void *out, const void *src, size_t len)
{
	if (ko_memcpy_is_slow(out, src, len))
		ko_copy_by_loop(out, src, len);
	else
		memcpy(out, src, len);
}

/* Copies `len` bytes to lines that another core has read, in an operation that goes both ways.
 * There memcpy begins late if it copies by "rep movsb" (why: D168 in comm/DECISIONS.md). */
static inline void ko_copy_expected(void *out, const void *src, size_t len)
{
	enum { SHORT = 2 << 10 }; /* memcpy itself uses vectors */

	if (len > SHORT && len <= KO_EXPECT_MOST)
		ko_copy_by_loop(out, src, len);
	else
		ko_copy_bytes(out, src, len);
}

/* Orders all streaming stores of this thread before its later stores; a release store alone does
 * not. It waits for those stores: call it once for a slot or an operation, not for each piece. */
void ko_stream_fence(void);

/* Run fn or combine on n elements of `size` bytes, with streaming stores to `out`, which must not
 * overlap an input. */
void ko_stream_fill(ko_fill_fn *fn, void *out, const void *src, size_t n, size_t size,
		    const union ko_scalar *s);
void ko_stream_combine(ko_combine_fn *combine, void *out, const void *in, const void *own, size_t n,
		       size_t size, const union ko_scalar *s);

#endif
