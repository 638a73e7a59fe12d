/* The shared-memory transport. */
#ifndef KO_SHM_H
#define KO_SHM_H

#include "comm/transport/link.h"

extern const struct ko_link_ops ko_shm_ops;

#endif
