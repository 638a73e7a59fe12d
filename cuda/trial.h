/* Trying the paths of the ring: each rank sends next a pattern, and looks at what came from prev. Links that lose or change bytes are
 * known (PCIe with access control, an IOMMU in between). */
#ifndef KO_GPU_PATH_CHECK_H
#define KO_GPU_PATH_CHECK_H

#include "gpu.h"

/* A pattern of this rank's, on its way to next, and room for prev's. */
struct ko_gpu_path_check {
	size_t len;
	unsigned char *bytes;        /* both, here */
	struct ko_gpu_memory memory; /* both, on the GPU */
	void *stream;
};

/* Before anything is sent. The GPU is entered, here and below. KOLO_ENOMEM, the driver's. */
int ko_gpu_path_check_prepare(struct ko_gpu_comm *g, size_t len, struct ko_gpu_path_check *t);

/* When all ranks are prepared: over the edges that are staged, or over those that are not. Blocks. KOLO_ESYS where the pattern did
 * not come as it was; those of a wait, and ko_gpu_error's. */
int ko_gpu_path_check_run(struct ko_gpu_comm *g, const struct ko_gpu_path_check *t, bool staged);

void ko_gpu_path_check_end(struct ko_gpu_comm *g, struct ko_gpu_path_check *t);

#endif
