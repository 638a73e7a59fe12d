/* Loops over f32 and f64, once for each; types.h includes it. No include guard. */
#define U      T
#define FACTOR NAME
#include "comm/reduce/arith.h"

#undef T
#undef U
#undef FACTOR
#undef NAME
