/* The loops over elements, for all types. kernels.c includes it in C for the host.
 * cuda/libcuda/kernels.cu includes it in C++ for GPUs, where each thread calls a loop for a few
 * elements.
 *
 * The file that includes it defines first: the types in memory (any_i8, ...), LOOP, FN,
 * ELEMENTWISE, BLOCK. For narrow types it also defines the conversions of BLOCK elements to float
 * and back (widen_f16, narrow_f16, ...).
 *
 * This header includes int.h, float.h, narrow.h, minmax.h, complex.h and pair.h once for each type.
 * NAME is then the type's name and T the type in memory: C's way to write one function for several
 * types. No include guard. */
/* T: the type in memory. U: its unsigned twin, in which sums and products wrap. W: the widest type
 * with the same signedness. */
#define T    any_i8
#define U    uint8_t
#define W    int64_t
#define NAME i8
#include "comm/reduce/int.h"
#define T    any_u8
#define U    uint8_t
#define W    uint64_t
#define NAME u8
#include "comm/reduce/int.h"
#define T    any_i16
#define U    uint16_t
#define W    int64_t
#define NAME i16
#include "comm/reduce/int.h"
#define T    any_u16
#define U    uint16_t
#define W    uint64_t
#define NAME u16
#include "comm/reduce/int.h"
#define T    any_i32
#define U    uint32_t
#define W    int64_t
#define NAME i32
#include "comm/reduce/int.h"
#define T    any_u32
#define U    uint32_t
#define W    uint64_t
#define NAME u32
#include "comm/reduce/int.h"
#define T    any_i64
#define U    uint64_t
#define W    int64_t
#define NAME i64
#include "comm/reduce/int.h"
#define T    any_u64
#define U    uint64_t
#define W    uint64_t
#define NAME u64
#include "comm/reduce/int.h"

#define T    any_f32
#define NAME f32
#include "comm/reduce/float.h"
#define T    any_f64
#define NAME f64
#include "comm/reduce/float.h"

#define T    any_u16
#define NAME f16
#include "comm/reduce/narrow.h"
#define T    any_u16
#define NAME bf16
#include "comm/reduce/narrow.h"
#define T    any_u8
#define NAME f8e4m3
#include "comm/reduce/narrow.h"
#define T    any_u8
#define NAME f8e5m2
#include "comm/reduce/narrow.h"

/* T: the unsigned integer with the floating type's bits. S: its signed twin. INF: the bits of
 * infinity; if the type has none, the largest bits that are no NaN. */
#define T    any_u32
#define S    int32_t
#define INF  0x7f800000
#define NAME f32
#include "comm/reduce/minmax.h"
#define T    any_u64
#define S    int64_t
#define INF  0x7ff0000000000000
#define NAME f64
#include "comm/reduce/minmax.h"
#define T    any_u16
#define S    int16_t
#define INF  0x7c00
#define NAME f16
#include "comm/reduce/minmax.h"
#define T    any_u16
#define S    int16_t
#define INF  0x7f80
#define NAME bf16
#include "comm/reduce/minmax.h"
#define T    any_u8
#define S    int8_t
#define INF  0x7e
#define NAME f8e4m3
#include "comm/reduce/minmax.h"
#define T    any_u8
#define S    int8_t
#define INF  0x7c
#define NAME f8e5m2
#include "comm/reduce/minmax.h"

#define T    any_f32
#define PART f32
#define NAME c64
#include "comm/reduce/complex.h"
#define T    any_f64
#define PART f64
#define NAME c128
#include "comm/reduce/complex.h"

/* Pairs as C lays them out. What is unused after the index is copied, too. */
struct pair_i32_i32 {
	any_i32 value, index;
};
struct pair_i64_i32 {
	any_i64 value;
	any_i32 index, unused;
};
struct pair_f32_i32 {
	any_f32 value;
	any_i32 index;
};
struct pair_f64_i32 {
	any_f64 value;
	any_i32 index, unused;
};

#define T         struct pair_i32_i32
#define IS_NAN(x) 0
#define NAME      i32_i32
#include "comm/reduce/pair.h"
#define T         struct pair_i64_i32
#define IS_NAN(x) 0
#define NAME      i64_i32
#include "comm/reduce/pair.h"
#define T         struct pair_f32_i32
#define IS_NAN(x) ((x) != (x))
#define NAME      f32_i32
#include "comm/reduce/pair.h"
#define T         struct pair_f64_i32
#define IS_NAN(x) ((x) != (x))
#define NAME      f64_i32
#include "comm/reduce/pair.h"
