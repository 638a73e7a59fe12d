/* The thread that watches over what a communicator has recorded. */
#ifndef KO_GPU_WATCHDOG_H
#define KO_GPU_WATCHDOG_H

#include "gpu.h"

/* Starts and ends the thread that watches, as soon as the GPUs are joined: over neighbours that die, leave while this rank's
 * stream waits for them, or keep it waiting for longer than the timeout; and when the communicator has failed, that this rank's
 * streams go on. */
int ko_gpu_watch(struct ko_gpu_comm *g);
void ko_gpu_unwatch(struct ko_gpu_comm *g);

/* The communicator has failed: lets this rank's stream go on until the last operation is over. Blocks for that, for some seconds
 * at most. Not while the thread above runs. */
void ko_gpu_let_go(struct ko_gpu_comm *g);

#endif
