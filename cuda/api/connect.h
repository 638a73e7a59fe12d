/* Joining the GPUs of a communicator's ranks. */
#ifndef CUDA_API_CONNECT_H
#define CUDA_API_CONNECT_H

#include "cuda/gpu/gpu.h"

/* Joins this rank's GPU, which `stream` is on, to the GPUs of its neighbours. A collective; blocks.
 * After a failure nobody is joined, and the communicator works as before. There is one exception:
 * it fails for good if the failure came while a staged edge through cards was checked. */
int ko_gpu_connect(struct kolo_comm *comm, void *stream);

#endif
