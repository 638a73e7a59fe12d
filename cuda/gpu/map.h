/* Mapping memory on other ranks of this host. Each rank offers memory, and all others map it. All
 * of this is done by collectives on the host. */
#ifndef CUDA_GPU_MAP_H
#define CUDA_GPU_MAP_H

#include "cuda/gpu/gpu.h"

/* Do ranks reach each other's memory? The answer is the same on all. */
bool ko_gpu_reaches_all(const struct ko_gpu_comm *g);

/* Blocks until what was recorded before is done. Mapping memory may wait for all streams, and none
 * of them may then wait for this rank. */
int ko_gpu_settle(struct ko_gpu_comm *g);

/* Maps the window of each rank of `over`, all on this host, on all others of it. A collective. The
 * ranks have settled. A rank that has failed before calls it too, with `status` and the thread's
 * error. What fails on one rank fails on all, and leaves nothing mapped. `shared` false: they only
 * tell each other how they fared. The GPU is entered. Errors: those of kolo_cuda_register. */
int ko_gpu_map(struct ko_gpu_comm *g, struct kolo_comm *over, struct ko_gpu_window *w, bool shared,
	       int status);

/* Checks the paths between the GPUs of all ranks of `over`, in both directions. A collective,
 * before anything is recorded. The GPU is entered. KOLO_ESYS: a path lies; KOLO_ENOTSUP: there is
 * none. */
int ko_gpu_check_paths(struct ko_gpu_comm *g, struct kolo_comm *over);

#endif
