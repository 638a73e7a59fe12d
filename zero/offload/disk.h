/* A file for state that memory has no room for. io_uring reads and writes it past the system's
 * cache, through buffers of the caller; several requests are under way at a time. Offsets and
 * lengths are multiples of 4096.
 *
 * The file is in a directory of the user's. It has a name of its own there, and all of its room
 * from the start. It is locked while it is in use. A file that a killed process left is removed
 * when the next one is opened there. */
#ifndef ZERO_OFFLOAD_DISK_H
#define ZERO_OFFLOAD_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zero_disk;

struct zero_disk_attr {
	const char *dir;
	const char *what; /* "optimizer", "parameters": part of the name, and of errors */
	int rank;         /* the same */
	uint64_t bytes;   /* of the file */
	int nbuffers;     /* of buffer_len bytes each, a multiple of 4096 */
	size_t buffer_len;
	char *buffers; /* nbuffers times buffer_len, aligned to 4096; the caller's, mapped until it
			  is closed */
	size_t block;  /* bytes of one request at most */
	int depth;     /* requests at a time */
};

/* Errors: KOLO_ENOTSUP (a build without liburing, a system without io_uring), KOLO_ESYS (names the
 * file and what to do), KOLO_EINVAL (a path that is too long), KOLO_ENOMEM. */
int zero_disk_open(const struct zero_disk_attr *attr, struct zero_disk **out);
/* Waits for requests under way, and removes the file. NULL is allowed. */
void zero_disk_close(struct zero_disk *disk);

/* Starts to fill buffer number i from the file, or to write it there: `len` bytes at `offset`. The
 * caller has waited for what was started for the buffer before, and for what is under way at the
 * same place of the file, unless both only read. Errors: KOLO_ESYS. */
int zero_disk_read(struct zero_disk *disk, int i, uint64_t offset, size_t len);
int zero_disk_write(struct zero_disk *disk, int i, uint64_t offset, size_t len);

/* Blocks until what was started for buffer i is done. Returns at once if nothing was. Errors:
 * KOLO_ESYS with the file, the place and the reason: a file that got shorter, a full disk, a device
 * that fails; again until something else is started for the buffer. */
int zero_disk_wait(struct zero_disk *disk, int i);

/* KOLO_ESYS if the file was removed, replaced or made shorter since it was opened. */
int zero_disk_check(const struct zero_disk *disk);

/* Bytes that were read and written since it was opened. */
void zero_disk_counts(const struct zero_disk *disk, uint64_t *read_bytes, uint64_t *written_bytes);

#endif
