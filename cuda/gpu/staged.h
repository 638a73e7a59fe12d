/* The slots of a staged edge's end. They are in pinned host memory, or in GPU memory if cards read
 * and write that. */
#ifndef CUDA_GPU_STAGED_H
#define CUDA_GPU_STAGED_H

#include "cuda/gpu/gpu.h"

/* Makes the slots of `link`, one of the two of the ring. The GPU is entered. KOLO_ENOMEM,
 * KOLO_EINVAL (KOLO_CUDA_DMABUF), the driver's errors. */
int ko_gpu_staged_make(struct ko_gpu_comm *g, const struct ko_gpu_ring *ring,
		       struct ko_gpu_link *link);

/* Frees them, after the stream and the proxy have stopped using them. */
void ko_gpu_staged_free(struct ko_gpu_comm *g, const struct ko_gpu_ring *ring,
			struct ko_gpu_link *link);

#endif
