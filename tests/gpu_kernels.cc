/* The kernels of cuda/kernels.cu as the host's C++ has them. */
#include "gpu_host.h"

#include "../cuda/kernels.cu"

typedef void kernel_fn(const struct ko_gpu_job j);

#define WAYS(name)                                                                                           \
	{                                                                                                    \
		ko_sum_##name, ko_prod_##name, ko_min_##name, ko_max_##name, ko_sum_scaled_##name,           \
			ko_scale_##name                                                                      \
	}

/* By enum kolo_type, then by enum ko_combine, and then scale. */
static kernel_fn *const kernels[][KO_NCOMBINES + 1] = {
	WAYS(i8),  WAYS(u8),   WAYS(i32), WAYS(u32), WAYS(i64),	   WAYS(u64),
	WAYS(f16), WAYS(bf16), WAYS(f32), WAYS(f64), WAYS(f8e4m3), WAYS(f8e5m2),
};

/* Launches the job's kernel, a copy being one of bytes: j->n counts them. */
extern "C" void t_launch(const struct ko_gpu_job *j)
{
	kernel_fn *kernel = j->in && j->own ? kernels[j->type][j->how] :
			    j->scales	    ? kernels[j->type][KO_NCOMBINES] :
					      ko_copy_bytes;

	launch(kernel, *j);
}
