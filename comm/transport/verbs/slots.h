/* Links through RDMA verbs: InfiniBand, RoCE. */
#ifndef KO_VERBS_H
#define KO_VERBS_H

#include "comm/transport/link.h"

extern const struct ko_link_ops ko_verbs_ops;

#endif
