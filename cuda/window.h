/* Memory that the ranks have registered (kolo_cuda_register). Every rank of the host works on all of it: it is mapped here, or in
 * reach when it is this process's. */
#ifndef KO_GPU_WINDOW_H
#define KO_GPU_WINDOW_H

#include "gpu.h"

/* Where `len` bytes of this rank are. */
struct ko_gpu_place ko_gpu_window_find(const struct ko_gpu_comm *g, const void *buffer, size_t len);

/* What is there on `rank`, which all have registered. */
char *ko_gpu_window_at(const struct ko_gpu_comm *g, int rank, struct ko_gpu_place place);

/* Tells the others which places this rank's operation has; and compares those of its neighbours, as far as they have told.
 * KOLO_EMISMATCH. */
void ko_gpu_places_post(struct ko_gpu_comm *g, uint64_t seq, const struct ko_gpu_places *mine);
int ko_gpu_places_compare(const struct ko_gpu_comm *g, const struct ko_desc *desc,
			  const struct ko_gpu_places *mine);

/* Unmaps one, which is not in the list, and all that was not deregistered. */
void ko_gpu_window_close(struct ko_gpu_comm *g, struct ko_gpu_window *w);
void ko_gpu_windows_close(struct ko_gpu_comm *g);

#endif
