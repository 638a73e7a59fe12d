/* Links through RDMA verbs: InfiniBand, RoCE. */
#ifndef KO_VERBS_H
#define KO_VERBS_H

#include "link.h"

extern const struct ko_link_ops ko_verbs_ops;

/* As the link's lend, for memory of a device, which the card then reads without the host: `offset` bytes into the dmabuf
 * whose descriptor is fd (the caller's) lie `len` bytes that have the address `memory` for the device. KOLO_ESYS where
 * the card's driver can't, or fd is no dmabuf. */
int ko_verbs_lend_dmabuf(struct ko_link *link, void *memory, size_t len, int fd, uint64_t offset);

#endif
