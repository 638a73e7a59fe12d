/* Lanes: from each rank to each other one, for messages.
 *
 * The receiver's GPU has the slots, and its board (struct ko_gpu_lane_board) their flags. A slot is
 * filled and emptied in turns. So a message need not be received before the next operation begins:
 * whoever comes to its slot again waits until that is empty.
 *
 * There are two banks of slots. One is for what is recorded directly: each chunk takes the next
 * slot, and ranks of one process use events instead of flags. The other is for graphs: each message
 * begins with slot 0, because all numbers in a graph are constants, and flags alone say what slots
 * are. So a send in a graph is for a recv in a graph. */
#ifndef CUDA_GPU_LANES_H
#define CUDA_GPU_LANES_H

#include "cuda/gpu/gpu.h"

/* Maps the slots of the ranks of this host, `over`. A collective of theirs, before anything is
 * recorded. The GPU is entered. If they don't reach each other's memory it succeeds, and their
 * lanes are far. Errors: those of kolo_cuda_register. */
int ko_gpu_lanes_map(struct ko_gpu_comm *g, struct kolo_comm *over);

/* Lists all lanes of this rank, after what far ones need was made (far.h). KOLO_ENOMEM, the
 * driver's errors. */
int ko_gpu_lanes_list(struct ko_gpu_comm *g);

/* Frees all that. The thread does not watch any more. The GPU is entered. */
void ko_gpu_lanes_close(struct ko_gpu_comm *g);

/* Posts what this end of a lane is called with: n elements of a type. Compares it with what the
 * other end said of the same message, if that can be seen. KOLO_EMISMATCH. */
int ko_gpu_lane_post(struct ko_gpu_comm *g, struct ko_gpu_lane *lane, int bank, size_t n,
		     enum kolo_type type);

#endif
