/* Memory that processes share by passing a descriptor, never a name: nothing is left behind in /dev/shm and
 * nobody who was not given the descriptor can open it. */
#ifndef COMM_SYS_SHMEM_H
#define COMM_SYS_SHMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes `len` zero bytes and maps the first `mapped` of them, with their pages `now` or as they are touched; *fd is closed by
 * the caller, *out unmapped with munmap. The size is sealed: no one who maps it can be hurt by its shrinking. What nobody
 * touches takes no memory. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int ko_shmem_create(uint64_t len, size_t mapped, bool now, int *fd, void **out);

/* Maps memory made by another rank, after checking seals and size; the rest as above. */
int ko_shmem_map(int fd, uint64_t len, size_t mapped, bool now, void **out);

/* Maps another part of it, as it is touched. Errors as above. */
int ko_shmem_map_part(int fd, uint64_t first, size_t len, void **out);

/* Gives the pages of a part of such memory back; who touches it next gets new ones, of zeros, near itself. */
void ko_shmem_forget(void *memory, size_t len);

/* Gets the pages of a part of such memory, near the caller. Errors: KOLO_ENOMEM. */
int ko_shmem_touch(void *memory, size_t len);

#endif
