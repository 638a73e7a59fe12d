/* Plain memory of another rank's process, read and written by the kernel (process_vm_readv, process_vm_writev). Not
 * everyone may: containers, Yama and seccomp forbid it; a communicator tries it once, when it is made. */
#ifndef COMM_MEMORY_CMA_H
#define COMM_MEMORY_CMA_H

#include "comm/core/comm.h"

enum { KO_READABLE = 4 };

/* Bytes of this rank's memory. */
struct ko_range {
	uint64_t first, len;
};

/* What of it others can get at, as far as was asked last. */
struct ko_readable {
	struct ko_range ranges[KO_READABLE];
	unsigned asked; /* times; the next one's place is asked % KO_READABLE */
};

/* May this rank read what rank `rank` has at address `at`, the number `secret`, and write it there once more? */
bool ko_cma_reachable(const struct kolo_comm *c, int rank, uint64_t at, uint64_t secret);

/* Can others get at all of these bytes of this rank's own memory, as far as both ends tell? Memory of devices, and what was
 * made secret, they can't. */
bool ko_cma_offers(struct kolo_comm *c, const void *buffer, size_t len);

/* out = `len` bytes at address `at` of `rank`. Errors: KOLO_EPEER (it has ended), KOLO_ESYS. */
int ko_cma_read(const struct kolo_comm *c, int rank, uint64_t at, void *out, size_t len);

/* `len` bytes at address `at` of `rank` = src. Not once the communicator has failed: who has returned from the operation
 * uses that memory for other things, and who has ended has left its pid to others. Errors: as above, and what it failed
 * with. */
int ko_cma_write(const struct kolo_comm *c, int rank, uint64_t at, const void *src, size_t len);

#endif
