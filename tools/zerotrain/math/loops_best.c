/* Chooses the best compiled loops that this processor can run. */
#include "tools/zerotrain/math/loops.h"

extern const struct loops loops_plain;
#ifdef KO_HAVE_X86_KERNELS
extern const struct loops loops_avx2, loops_avx512;
#endif

const struct loops *best_loops(void)
{
#ifdef KO_HAVE_X86_KERNELS
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
		return &loops_avx512;
	if (__builtin_cpu_supports("avx2"))
		return &loops_avx2;
#endif
	return &loops_plain;
}
