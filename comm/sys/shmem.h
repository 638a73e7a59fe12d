/* Shared memory that processes pass on as a descriptor, never by a name. So nothing stays in
 * /dev/shm, and only a process that was given the descriptor can open the memory. */
#ifndef COMM_SYS_SHMEM_H
#define COMM_SYS_SHMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes `len` bytes of zeros and maps the first `mapped` of them. `now`: allocates their pages at
 * once; otherwise each page is allocated when it is first touched. Untouched pages take no memory.
 * The size is sealed: nobody can shrink the memory under those who map it.
 *
 * The caller closes *fd and unmaps *out with munmap. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int ko_shmem_create(uint64_t len, size_t mapped, bool now, int *fd, void **out);

/* Maps the first `mapped` bytes of memory that another rank made. Checks first that it is sealed
 * and has `len` bytes. `now`, *out and errors: see ko_shmem_create. */
int ko_shmem_map(int fd, uint64_t len, size_t mapped, bool now, void **out);

/* Maps the bytes [first, first + len) of such memory; its pages are allocated when they are first
 * touched. The caller unmaps *out. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int ko_shmem_map_part(int fd, uint64_t first, size_t len, void **out);

/* Gives the pages of a part of such memory back to the kernel. The next to touch one gets a new
 * page of zeros on its own NUMA node. */
void ko_shmem_forget(void *memory, size_t len);

/* Allocates the pages of a part of such memory now, on the caller's NUMA node. Errors:
 * KOLO_ENOMEM. */
int ko_shmem_touch(void *memory, size_t len);

#endif
