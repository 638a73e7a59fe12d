/* Lanes that go by the host: to ranks on other hosts, and to all if GPUs don't reach each other or
 * a transport was asked for by name.
 *
 * Each end has slots in pinned host memory, and a board of its own. The watching thread sends what
 * is in full slots as messages with tags (kolo_mailbox.h), a tag for each slot. It receives into a
 * slot when a stream is about to wait for it: before that the stream writes the length into the
 * slot's flag. So the thread wants nothing of a rank that this one does not wait for. */
#ifndef CUDA_GPU_FAR_H
#define CUDA_GPU_FAR_H

#include "cuda/gpu/gpu.h"

/* Makes what such lanes of this rank need, before they are listed. A collective of all ranks, over
 * the inner communicator. The GPU is entered. KOLO_ENOMEM, the driver's errors, those of
 * kolo_mailbox_create. */
int ko_gpu_far_open(struct ko_gpu_comm *g);

/* Frees it. The thread does not watch any more. The GPU is entered. */
void ko_gpu_far_close(struct ko_gpu_comm *g);

/* Bytes of one lane's slots; the same at both ends. */
size_t ko_gpu_far_len(const struct ko_gpu_comm *g);

/* Sets where the slots of one end of a far lane are. */
void ko_gpu_far_slots(const struct ko_gpu_comm *g, struct ko_gpu_lane *lane);

/* Moves what can be moved. Returns false if nothing was. What fails fails the communicator. */
bool ko_gpu_far_move(struct ko_gpu_comm *g);

/* Has all been sent that was recorded? From any thread. */
bool ko_gpu_far_is_done(const struct ko_gpu_comm *g);

#endif
