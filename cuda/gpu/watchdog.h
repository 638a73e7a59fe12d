/* The thread that watches what a communicator has recorded. */
#ifndef CUDA_GPU_WATCHDOG_H
#define CUDA_GPU_WATCHDOG_H

#include "cuda/gpu/gpu.h"

/* Starts the thread. It begins to watch when the GPUs are joined (g->joined). It fails the
 * communicator if this rank's stream waits for a rank that has died or left, or for longer than the
 * timeout. After a failure it lets this rank's streams go on. It also runs the proxy. KOLO_ESYS. */
int ko_gpu_watch(struct ko_gpu_comm *g);

/* Ends the thread. */
void ko_gpu_unwatch(struct ko_gpu_comm *g);

/* After the communicator has failed: lets this rank's stream go on until the last operation is
 * over. Blocks, for at most 5 s. Not while the thread watches. */
void ko_gpu_let_go(struct ko_gpu_comm *g);

#endif
