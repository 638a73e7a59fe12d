/* The transports that this build has, and which of them joins two ranks. A new transport is one row
 * in transports.c. */
#ifndef COMM_CORE_TRANSPORTS_H
#define COMM_CORE_TRANSPORTS_H

#include "comm/transport/link.h"

/* All transports of this build, best first, then NULL. */
extern const struct ko_link_ops *const ko_transports[];

/* The transport between hosts that KOLO_NET names; "" if it is unset. Errors: KOLO_EINVAL, with the
 * names that there are. */
int ko_transport_of_net(const char **out);

/* Chooses the transport called `name` or, if name is "", the best one that joins a and b. Errors:
 * KOLO_ENOTSUP, with the reason of the last transport tried. */
int ko_transport_choose(const char *name, const struct ko_place *a, const struct ko_place *b,
			const struct ko_link_ops **out);

#endif
