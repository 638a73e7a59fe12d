/* Memory that the ranks have registered (kolo_cuda_register). Every rank of the host works on all
 * of it. It is mapped here, or within reach if it belongs to this process. */
#ifndef CUDA_GPU_WINDOW_H
#define CUDA_GPU_WINDOW_H

#include "cuda/gpu/gpu.h"

/* Finds `len` bytes of this rank in its registrations. */
struct ko_gpu_place ko_gpu_window_find(const struct ko_gpu_comm *g, const void *buffer, size_t len);

/* Where this GPU sees that place in `rank`'s memory. All ranks have registered it. */
char *ko_gpu_window_at(const struct ko_gpu_comm *g, int rank, struct ko_gpu_place place);

/* Posts the places of this rank's operation for the others to read. */
void ko_gpu_places_post(struct ko_gpu_comm *g, uint64_t seq, const struct ko_gpu_places *mine);

/* Compares them with the posts of the two neighbours, if those have posted. KOLO_EMISMATCH. */
int ko_gpu_places_compare(const struct ko_gpu_comm *g, const struct ko_desc *desc,
			  const struct ko_gpu_places *mine);

/* Unmaps a window that is not in the list of registrations. */
void ko_gpu_window_close(struct ko_gpu_comm *g, struct ko_gpu_window *w);

/* Unmaps all that are still registered. */
void ko_gpu_windows_close(struct ko_gpu_comm *g);

#endif
