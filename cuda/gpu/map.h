/* Mapping memory on all ranks. Each rank offers memory, and all others map it. The paths between
 * all GPUs are checked before the first time. All of this is done by collectives on the host. */
#ifndef CUDA_GPU_MAP_H
#define CUDA_GPU_MAP_H

#include "cuda/gpu/gpu.h"

/* Do ranks reach each other's memory? The answer is the same on all. */
bool ko_gpu_reaches_all(const struct ko_gpu_comm *g);

/* Blocks until what was recorded before is done. Mapping memory may wait for all streams, and none
 * of them may then wait for this rank. */
int ko_gpu_settle(struct ko_gpu_comm *g);

/* Maps the window of each rank on all others. A collective: all ranks settle, and the first time
 * they check the paths. A rank that has failed before calls it too, with `status` and the thread's
 * error. What fails on one rank fails on all, and leaves nothing mapped. The GPU is entered.
 * Errors: those of kolo_cuda_register. */
int ko_gpu_map(struct ko_gpu_comm *g, struct ko_gpu_window *w, int status);

/* Allocates `len` bytes of Kolo's own, and maps them on all ranks; not in the list of
 * registrations. A collective; blocks until what was recorded is done. The GPU is entered. After an
 * error no rank has any. Errors: those of kolo_cuda_register. */
int ko_gpu_window_make(struct ko_gpu_comm *g, size_t len, struct ko_gpu_memory *memory,
		       struct ko_gpu_window *out);

#endif
