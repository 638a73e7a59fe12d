/* Joining the GPUs of a communicator's ranks. */
#ifndef KO_GPU_CONNECT_H
#define KO_GPU_CONNECT_H

#include "gpu.h"

/* Joins this rank's GPU, the one that the stream is on, to its neighbours'. A collective; blocks. With a failure nobody is
 * joined, and the communicator works as before, unless that came while bytes went over staged edges, to try cards. */
int ko_gpu_connect(struct kolo_comm *comm, void *stream);

#endif
