/* Links through RDMA verbs: InfiniBand and RoCE. */
#ifndef COMM_TRANSPORT_VERBS_SLOTS_H
#define COMM_TRANSPORT_VERBS_SLOTS_H

#include "comm/transport/link.h"

extern const struct ko_link_ops ko_verbs_ops;

#endif
