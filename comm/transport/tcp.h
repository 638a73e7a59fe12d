/* Links through TCP, between hosts with no other network than the kernel's. */
#ifndef COMM_TRANSPORT_TCP_H
#define COMM_TRANSPORT_TCP_H

#include "comm/transport/link.h"

extern const struct ko_link_ops ko_tcp_ops;

#endif
