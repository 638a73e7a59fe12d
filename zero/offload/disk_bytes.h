/* Bytes of a file of state from any place, of any length: between updates, when nobody waits for
 * speed. */
#ifndef ZERO_OFFLOAD_DISK_BYTES_H
#define ZERO_OFFLOAD_DISK_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct zero_disk;

/* Copies bytes at `offset` to the host, and from it, through buffer number 0 of the file, which is
 * idle and has `len` bytes. Done when they return. Errors: those of zero_disk_wait. */
int zero_disk_get(struct zero_disk *disk, char *buffer, size_t len, uint64_t offset, void *out,
		  size_t bytes);
int zero_disk_put(struct zero_disk *disk, char *buffer, size_t len, uint64_t offset,
		  const void *from, size_t bytes);

#endif
