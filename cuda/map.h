/* Mapping memory: every rank gets what each of the others has offered, after all paths have been checked. All of it is done by
 * collectives on the host. */
#ifndef KO_GPU_MAP_H
#define KO_GPU_MAP_H

#include "gpu.h"

/* Do ranks reach each other's memory? The same on all. */
bool ko_gpu_reaches_all(const struct ko_gpu_comm *g);

/* What was recorded before is done: mapping memory may wait for streams, of which none may wait for this rank. Blocks. */
int ko_gpu_settle(struct ko_gpu_comm *g);

/* Maps the window of each rank on all others, once all have settled and, the first time, have checked the paths between them. A
 * collective, also of ranks whose `status` says that they have failed before, with the thread's error: what fails on one fails on
 * all, and leaves nothing mapped. The GPU is entered. Errors: those of kolo_cuda_register. */
int ko_gpu_map(struct ko_gpu_comm *g, struct ko_gpu_window *w, int status);

/* Makes memory of Kolo's own that all ranks have mapped, not in the list. A collective; blocks until what was recorded is done. The
 * GPU is entered. Errors: those of kolo_cuda_register; nobody has any then. */
int ko_gpu_window_make(struct ko_gpu_comm *g, size_t len, struct ko_gpu_memory *memory,
		       struct ko_gpu_window *out);

#endif
