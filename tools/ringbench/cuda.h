/* Buffers on a GPU. They need the driver's library, libcuda, which is opened at run time; a build
 * needs nothing of CUDA. On failure a function prints the reason on standard error, and ringbench
 * ends. */
#ifndef TOOLS_RINGBENCH_CUDA_H
#define TOOLS_RINGBENCH_CUDA_H

#include "kolo/kolo_cuda.h"

#include <stddef.h>

struct gpu;

/* The GPU of this rank: ranks go round the numbers in `devices`, "0,2"; NULL: round all there are.
 * NULL: there is none. */
struct gpu *gpu_open(int rank, const char *devices);
void gpu_close(struct gpu *gpu);

/* "NVIDIA H100", and its number. */
const char *gpu_name(const struct gpu *gpu);
int gpu_number(const struct gpu *gpu);

struct CUstream_st *gpu_stream(const struct gpu *gpu);

/* Zeroed memory of the GPU, which lasts as long as it is open; NULL: there is not so much. */
void *gpu_alloc(struct gpu *gpu, size_t len);

/* 0, or it did not work. They wait for the stream. */
int gpu_put(struct gpu *gpu, void *to, const void *from, size_t len);
int gpu_get(struct gpu *gpu, void *to, const void *from, size_t len);
int gpu_zero(struct gpu *gpu, void *to, size_t len);

/* The time between two places in the stream: where gpu_begin was called, and where gpu_end was
 * called. gpu_end waits until the stream is there. */
int gpu_begin(struct gpu *gpu);
int gpu_end(struct gpu *gpu, double *us);

#endif
