/* Loops over f32 and f64; see kernels_types.h. No include guard. */
#define U      T
#define FACTOR NAME
#include "comm/reduce/arith.h"

#undef T
#undef U
#undef FACTOR
#undef NAME
