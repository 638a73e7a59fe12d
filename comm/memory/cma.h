/* CMA (cross memory attach): the kernel reads and writes plain memory of another rank's process
 * (process_vm_readv, process_vm_writev). Containers, Yama and seccomp may forbid it, so a
 * communicator tries it once, when it is made (comm/create/probe.c). */
#ifndef COMM_MEMORY_CMA_H
#define COMM_MEMORY_CMA_H

#include "comm/core/comm.h"

enum { KO_READABLE = 4 };

/* A range of this rank's memory: address and bytes. */
struct ko_range {
	uint64_t first, len;
};

/* The ranges that ko_cma_offers found good last. */
struct ko_readable {
	struct ko_range ranges[KO_READABLE];
	unsigned asked; /* ranges found so far; the next one's place is asked % KO_READABLE */
};

/* Tries CMA: rank `rank` has the number `secret` at address `at`. Can this rank read it there, and
 * write it back? */
bool ko_cma_reachable(const struct kolo_comm *c, int rank, uint64_t at, uint64_t secret);

/* Can the kernel get at these bytes of this rank's own memory for other ranks? It tries the first
 * and the last byte. Memory of devices and secret memory (memfd_secret) are refused. */
bool ko_cma_offers(struct kolo_comm *c, const void *buffer, size_t len);

/* Reads `len` bytes at address `at` of rank `rank` into out. Errors: KOLO_EPEER (its process has
 * ended), KOLO_ESYS. */
int ko_cma_read(const struct kolo_comm *c, int rank, uint64_t at, void *out, size_t len);

/* Writes `len` bytes from src to address `at` of rank `rank`. Writes nothing after the communicator
 * has failed: a rank that has returned from the operation uses that memory for other things, and
 * the pid of a process that has ended may belong to another one. Errors: KOLO_EPEER (its process
 * has ended), KOLO_ESYS, the cause of the communicator's failure. */
int ko_cma_write(const struct kolo_comm *c, int rank, uint64_t at, const void *src, size_t len);

#endif
