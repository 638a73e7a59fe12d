/* The kernels of cuda/libcuda/zero_kernels.cu as the host's C++ has them. */
#ifndef TESTS_CUDA_GPU_ZERO_KERNELS_H
#define TESTS_CUDA_GPU_ZERO_KERNELS_H

#include "kolo/kolo_zero_device.h"

/* Work that has elements, but for clear, done when it returns. On any thread. */
#ifdef __cplusplus
extern "C"
#endif
	void
	t_zero_launch(const struct kolo_zero_work *work);

#endif
