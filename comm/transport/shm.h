/* Links through shared memory, inside a host. */
#ifndef COMM_TRANSPORT_SHM_H
#define COMM_TRANSPORT_SHM_H

#include "comm/transport/link.h"

extern const struct ko_link_ops ko_shm_ops;

#endif
