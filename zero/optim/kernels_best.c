/* Chooses the loops for this processor (zero_kernels_best). */
#include "zero/optim/kernels.h"

extern const struct zero_kernels zero_kernels_plain, zero_kernels_avx2, zero_kernels_avx512;

const struct zero_kernels *const *zero_kernels_list(void)
{
	static const struct zero_kernels *const lists[][4] = {
		{ &zero_kernels_plain, NULL },
#ifdef KO_HAVE_X86_KERNELS
		{ &zero_kernels_plain, &zero_kernels_avx2, NULL },
		{ &zero_kernels_plain, &zero_kernels_avx2, &zero_kernels_avx512, NULL },
#endif
	};
	int best = 0;

#ifdef KO_HAVE_X86_KERNELS
	if (__builtin_cpu_supports("avx2"))
		best = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
				       __builtin_cpu_supports("avx512vl") &&
				       __builtin_cpu_supports("avx512dq")
			       ? 2
			       : 1;
#endif
	return lists[best];
}

const struct zero_kernels *zero_kernels_best(void)
{
	const struct zero_kernels *const *k = zero_kernels_list();

	while (k[1])
		k++;
	return *k;
}

double zero_lanes_sum(const struct zero_lanes *lanes)
{
	double sum = 0;

	for (int i = 0; i < ZERO_LANES; i++)
		sum += lanes->sum[i];
	return sum;
}
