/* Links through libfabric: tcp on any network, and what the providers of libfabric can use instead. */
#ifndef COMM_TRANSPORT_OFI_SLOTS_H
#define COMM_TRANSPORT_OFI_SLOTS_H

#include "comm/transport/link.h"

extern const struct ko_link_ops ko_ofi_ops;

#endif
