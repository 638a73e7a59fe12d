/* The kernels of cuda/libcuda/kernels.cu as the host's C++ has them. */
#include "tests/cuda/gpu_host.h"

#include "cuda/libcuda/kernels.cu"

typedef void kernel_fn(const struct ko_gpu_job j);

#define WAYS(name)                                                                                           \
	{                                                                                                    \
		ko_sum_##name, ko_prod_##name, ko_min_##name, ko_max_##name, ko_sum_scaled_##name,           \
			ko_scale_##name, ko_copy_##name                                                      \
	}

/* By enum kolo_type, then by enum ko_combine, and then scale and copy. */
static kernel_fn *const kernels[][KO_NCOMBINES + 2] = {
	WAYS(i8),  WAYS(u8),   WAYS(i32), WAYS(u32), WAYS(i64),    WAYS(u64),
	WAYS(f16), WAYS(bf16), WAYS(f32), WAYS(f64), WAYS(f8e4m3), WAYS(f8e5m2),
};

/* Launches the job's kernel. */
extern "C" void t_launch(const struct ko_gpu_job *j)
{
	int which = j->nins > 1 ? j->how : j->scales ? KO_NCOMBINES : KO_NCOMBINES + 1;

	launch(kernels[j->type][which], *j);
}
