/* The kernels of cuda/kernels.cu as the host's C++ has them: a thread of a GPU is a call. */
#include <cstddef>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __align__(n)    __attribute__((aligned(n)))
#define __launch_bounds__(n)
#define __grid_constant__

struct uint4 {
	unsigned x, y, z, w;
};

struct index {
	unsigned x;
};

static index blockIdx, threadIdx;
static const index blockDim = { 32 }, gridDim = { 3 };

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

	for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
		for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
			kernel(*j);
}
