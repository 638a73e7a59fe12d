/* Links through libfabric: tcp on any network, and what the providers of libfabric can use instead. */
#ifndef KO_OFI_H
#define KO_OFI_H

#include "comm/transport/link.h"

extern const struct ko_link_ops ko_ofi_ops;

#endif
