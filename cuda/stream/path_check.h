/* Checking the paths of a ring: each rank sends a pattern to next, and compares what came from
 * prev. Some paths lose or change bytes, for example over PCIe with access control or an IOMMU. */
#ifndef CUDA_STREAM_PATH_CHECK_H
#define CUDA_STREAM_PATH_CHECK_H

#include "cuda/gpu/gpu.h"

/* This rank's pattern for next, and space for prev's. */
struct ko_gpu_path_check {
	const struct ko_gpu_ring *ring;
	size_t len;                  /* bytes of a pattern */
	unsigned char *bytes;        /* both, on the host */
	struct ko_gpu_memory memory; /* both, on the GPU */
	void *stream;
};

/* Makes the pattern, before anything is sent. The GPU is entered, as in the two functions below.
 * KOLO_ENOMEM, the driver's errors. */
int ko_gpu_path_check_prepare(struct ko_gpu_comm *g, const struct ko_gpu_ring *ring, size_t len,
			      struct ko_gpu_path_check *t);

/* Sends and compares, after all ranks have prepared: over the edges that are staged, or over those
 * that are not. Blocks. KOLO_ESYS if the pattern changed on the way; errors of a wait on the host;
 * the driver's errors. */
int ko_gpu_path_check_run(struct ko_gpu_comm *g, const struct ko_gpu_path_check *t, bool staged);

/* Frees what prepare made, also after it has failed. */
void ko_gpu_path_check_end(struct ko_gpu_comm *g, struct ko_gpu_path_check *t);

#endif
