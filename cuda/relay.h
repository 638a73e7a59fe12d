/* Staged edges: where a GPU can't write into the next rank's, its stream fills slots in pinned host memory, the proxy moves what
 * is in them over the inner communicator's link, and the other rank's proxy fills slots there. So streams work over shared memory,
 * TCP, RDMA and libfabric without a second implementation of each. The flags of the slots are all that the streams and the proxy
 * have in common: a graph's replay needs no call. */
#ifndef KO_GPU_PROXY_H
#define KO_GPU_PROXY_H

#include "gpu.h"

/* Of a rank with a staged edge; g->in and g->out say which. KOLO_ENOMEM. */
int ko_gpu_proxy_open(struct ko_gpu_comm *g);

/* Moves what can be moved, on the thread that watches, without blocking. How much that was: 0, nothing. */
int ko_gpu_proxy_move(struct ko_gpu_comm *g);

/* Compares what this rank is called with with what prev has said of the same operation, and tells next over the same link:
 * across hosts ranks don't see each other's posts. On the calling thread. KOLO_EMISMATCH. */
int ko_gpu_proxy_compare(struct ko_gpu_comm *g, const struct ko_desc *mine);

/* Has all that streams have filled arrived at the other end's link? */
bool ko_gpu_proxy_is_done(const struct ko_gpu_comm *g);

/* A link has failed, some time ago, whose rank this one's stream waits for: fails the communicator. */
void ko_gpu_proxy_check(struct ko_gpu_comm *g, int waits_for);

/* NULL in g->proxy is allowed. */
void ko_gpu_proxy_close(struct ko_gpu_comm *g);

#endif
