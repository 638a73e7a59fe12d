/* Ranks of one process. Their streams wait for each other's events, not for flags, because CUDA
 * knows the order that events make. An event must be recorded before it is waited for, so each rank
 * counts what it has recorded. While they join, ranks send each other the addresses of what they
 * share. The last to leave frees it. */
#ifndef CUDA_GPU_THREADS_H
#define CUDA_GPU_THREADS_H

#include "cuda/gpu/gpu.h"

/* The receiver makes the pair of the ring's edge from prev. The slots belong to the pair from then
 * on. KOLO_ENOMEM, the driver's errors. */
int ko_gpu_pair_open(struct ko_gpu_comm *g, struct ko_gpu_link *in);

/* The sender joins the pair of the edge to next. `address` is where next says that it is. `slots`
 * is what the driver's `export` gave there. KOLO_ESYS, KOLO_ENOTSUP, the driver's errors. */
int ko_gpu_pair_join(struct ko_gpu_comm *g, struct ko_gpu_link *out, uint64_t address,
		     const struct ko_gpu_export *slots);

/* Leaves the pair of this link, if it has one. */
void ko_gpu_pair_let_go(struct ko_gpu_comm *g, struct ko_gpu_link *link);

/* Makes this rank's marks. KOLO_ENOMEM, the driver's errors. */
int ko_gpu_marks_open(struct ko_gpu_comm *g);

/* Finds the marks of another rank of the process, which says that they are at `address`.
 * KOLO_ESYS. */
int ko_gpu_marks_join(struct ko_gpu_comm *g, int rank, uint64_t address);

/* Makes what this rank's marks have for the lanes to it. All ranks of the process have found each
 * other's marks. KOLO_ENOMEM, the driver's errors. */
int ko_gpu_crossings_open(struct ko_gpu_comm *g);

/* Makes what the sender has in the lanes to other ranks of this process, after those have made
 * theirs. The driver's errors. */
int ko_gpu_crossings_join(struct ko_gpu_comm *g);

/* Leaves all marks, and frees what is in them if no other rank holds them. */
void ko_gpu_marks_let_go(struct ko_gpu_comm *g);

#endif
