/* Where the slots of a staged edge's end are: in pinned host memory, or in the GPU's own, where cards read and write that. */
#ifndef KO_GPU_STAGED_H
#define KO_GPU_STAGED_H

#include "gpu.h"

/* Of g->in or g->out. The GPU is entered. KOLO_ENOMEM, KOLO_EINVAL (KOLO_CUDA_DMABUF), the driver's. */
int ko_gpu_staged_make(struct ko_gpu_comm *g, struct ko_gpu_link *link);

/* When neither the stream nor a proxy uses it any more. */
void ko_gpu_staged_free(struct ko_gpu_comm *g, struct ko_gpu_link *link);

#endif
