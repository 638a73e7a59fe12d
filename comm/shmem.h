/* Memory that processes share by passing a descriptor, never a name: nothing is left behind in /dev/shm and
 * nobody who was not given the descriptor can open it. */
#ifndef KO_SHMEM_H
#define KO_SHMEM_H

#include <stdbool.h>
#include <stddef.h>

/* Makes and maps `len` zero bytes, with their pages `now` or as they are touched; *fd is closed by the caller, *out unmapped with munmap. The size is sealed:
 * no one who maps it can be hurt by its shrinking. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int ko_shmem_create(size_t len, bool now, int *fd, void **out);

/* Maps memory made by another rank, after checking seals and size; pages and errors as above. */
int ko_shmem_map(int fd, size_t len, bool now, void **out);

/* Gets the pages of a part of such memory, near the caller. Errors: KOLO_ENOMEM. */
int ko_shmem_touch(void *memory, size_t len);

#endif
