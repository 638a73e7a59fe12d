/* Links through libfabric, on any network for which it has a provider. */
#ifndef COMM_TRANSPORT_OFI_SLOTS_H
#define COMM_TRANSPORT_OFI_SLOTS_H

#include "comm/transport/link.h"

extern const struct ko_link_ops ko_ofi_ops;

#endif
