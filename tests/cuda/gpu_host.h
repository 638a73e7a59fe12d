/* What CUDA has for kernels, for C++ on the host: a thread of a GPU is a call, those of a block one
 * after another. */
#ifndef TESTS_CUDA_GPU_HOST_H
#define TESTS_CUDA_GPU_HOST_H

#include <cmath>
#include <cstddef>
#include <cstdint>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __align__(n)    __attribute__((aligned(n)))
#define __launch_bounds__(n)
#define __grid_constant__
#define __restrict__ __restrict
/* Of the block whose threads are called: each writes what those after it read. */
#define __shared__ static thread_local

struct alignas(8) uint2 {
	unsigned x, y;
};

struct alignas(16) uint4 {
	unsigned x, y, z, w;
};

struct index {
	unsigned x;
};

static thread_local index blockIdx, threadIdx, blockDim = { 32 }, gridDim = { 3 };

static inline void __syncwarp()
{
}

static inline void __syncthreads()
{
}

/* Calls the kernel for each thread. */
template <typename Kernel, typename Job> static void launch(Kernel *kernel, const Job &job)
{
	for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
		for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
			kernel(job);
}

#endif
