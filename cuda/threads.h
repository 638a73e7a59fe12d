/* Ranks of one process: their streams wait for each other's events, which CUDA knows of, and not for flags. An event must be
 * recorded before it is waited for: so each rank counts what it has recorded. Ranks find what others have by its address, which
 * they tell each other while they join; whoever leaves last frees it. */
#ifndef KO_GPU_THREADS_H
#define KO_GPU_THREADS_H

#include "gpu.h"

/* The edge from prev, of g->in: the receiver makes it, and the slots are the pair's from then on. KOLO_ENOMEM, the driver's. */
int ko_gpu_pair_open(struct ko_gpu_comm *g);

/* And the edge to next, which says that it is at this address, and has said of its slots what the driver's `export` gave: its sender
 * joins. KOLO_ESYS, KOLO_ENOTSUP, the driver's. */
int ko_gpu_pair_join(struct ko_gpu_comm *g, uint64_t address, const struct ko_gpu_export *slots);

void ko_gpu_pair_let_go(struct ko_gpu_comm *g, struct ko_gpu_link *link);

/* This rank's marks; and those of another one of the process. The same errors. */
int ko_gpu_marks_open(struct ko_gpu_comm *g);
int ko_gpu_marks_join(struct ko_gpu_comm *g, int rank, uint64_t address);

/* All of them. */
void ko_gpu_marks_let_go(struct ko_gpu_comm *g);

#endif
