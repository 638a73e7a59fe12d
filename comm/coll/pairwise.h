/* The algorithm "pairwise": each rank gets its block of everyone's vector in messages, adds it up,
 * and sends the sum to those that need it. It realises any order of additions, for any number of
 * ranks on any hosts, and moves as many bytes as the ring does. */
#ifndef COMM_COLL_PAIRWISE_H
#define COMM_COLL_PAIRWISE_H

#include "comm/plan/algorithm.h"

extern const struct ko_algorithm_ops ko_pairwise_ops;

#endif
