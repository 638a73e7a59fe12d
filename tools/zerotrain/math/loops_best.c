/* What this processor can run (processor_level), and the best compiled loops for it. */
#include "tools/zerotrain/math/loops.h"

extern const struct loops loops_plain;
#ifdef KO_HAVE_X86_KERNELS
extern const struct loops loops_avx2, loops_avx512;
#endif

enum level processor_level(void)
{
#ifdef KO_HAVE_X86_KERNELS
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
		return AVX512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return AVX2;
#endif
	return PLAIN;
}

const struct loops *best_loops(void)
{
#ifdef KO_HAVE_X86_KERNELS
	switch (processor_level()) {
	case AVX512: return &loops_avx512;
	case AVX2: return &loops_avx2;
	default: break;
	}
#endif
	return &loops_plain;
}
