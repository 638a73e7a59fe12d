/* Plain memory of another rank's process, read by the kernel (process_vm_readv). Not everyone may: containers, Yama and
 * seccomp forbid it; a communicator tries it once, when it is made. */
#ifndef KO_PEER_H
#define KO_PEER_H

#include "comm.h"

/* May this rank read what rank `rank` has at address `at`, the number `secret`? */
bool ko_peer_readable(const struct kolo_comm *c, int rank, uint64_t at, uint64_t secret);

/* Can others read all of these bytes of this rank's own memory, as far as both ends tell? Memory of devices, and what was
 * made secret, they can't. */
bool ko_peer_offers(struct kolo_comm *c, const void *buffer, size_t len);

/* out = `len` bytes at address `at` of `rank`. Errors: KOLO_EPEER (it has ended), KOLO_ESYS. */
int ko_peer_read(const struct kolo_comm *c, int rank, uint64_t at, void *out, size_t len);

#endif
