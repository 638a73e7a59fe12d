/* The algorithm "exchange": every rank gets everyone's whole vector over links (bruck.h), and adds
 * them up itself. An all-reduce of few bytes takes fewer hops so than round the ring. */
#ifndef COMM_COLL_EXCHANGE_H
#define COMM_COLL_EXCHANGE_H

#include "comm/core/comm.h"

extern const struct ko_algorithm_ops ko_exchange_ops;

/* Bytes of the longest vector of which every rank can hold everyone's. */
size_t ko_exchange_room(const struct kolo_comm *c);

#endif
