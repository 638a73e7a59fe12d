/* The proxy: moves the bytes of staged edges.
 *
 * Across a staged edge a GPU can't write into the next rank's memory. Its stream fills slots in
 * pinned host memory instead. The proxy moves their bytes over the inner communicator's link, and
 * the other rank's proxy fills slots there. So streams work over shared memory, TCP, RDMA and
 * libfabric without a version for each. Streams and proxy share the slots' flags and nothing else,
 * so the replay of a graph needs no call. */
#ifndef CUDA_GPU_PROXY_H
#define CUDA_GPU_PROXY_H

#include "cuda/gpu/gpu.h"

/* Makes the proxy of a ring with a staged edge of this rank; its links say which. KOLO_ENOMEM. */
int ko_gpu_proxy_open(struct ko_gpu_comm *g, struct ko_gpu_ring *ring);

/* Moves what can be moved without blocking. On the watching thread. Returns 0 if nothing moved. */
int ko_gpu_proxy_move(struct ko_gpu_comm *g, struct ko_gpu_ring *ring);

/* Compares this rank's call with what prev in the ring of all ranks has sent about the same
 * operation, and sends it to next: across hosts ranks don't see each other's posts. That ring has a
 * proxy. On the calling thread. KOLO_EMISMATCH. */
int ko_gpu_proxy_compare(struct ko_gpu_comm *g, const struct ko_desc *mine);

/* Has everything that streams have filled arrived at the other end's link? */
bool ko_gpu_proxy_is_done(const struct ko_gpu_ring *ring);

/* Fails the communicator if the link to or from `waits_for` failed some time ago. `waits_for` is
 * the rank that this rank's stream waits for. */
void ko_gpu_proxy_check(struct ko_gpu_comm *g, const struct ko_gpu_ring *ring, int waits_for);

/* There may be none. */
void ko_gpu_proxy_close(struct ko_gpu_ring *ring);

#endif
