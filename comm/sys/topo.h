/* Where a rank runs: its host, its processors, its NUMA node, its RDMA devices. Only topo.c uses
 * hwloc, and only if the build found it. */
#ifndef COMM_SYS_TOPO_H
#define COMM_SYS_TOPO_H

#include "comm/sys/net.h"

#include <stdbool.h>
#include <stdint.h>

enum { KO_CPU_WORDS = 16 };

/* The best RDMA device of a host that a verbs link can use; the best is last. */
enum ko_rdma { KO_RDMA_NONE, KO_RDMA_SOFTWARE, KO_RDMA_CARD };

/* Where a rank runs. Two ranks share a host if `machine` is equal: then they reach each other's
 * abstract sockets and share memory. Names are for people. Plain bytes: ranks send it to each
 * other. */
struct ko_place {
	char host[64];
	/* The kernel's boot id (the host's name if there is none), and the namespace of sockets:
	 * containers of one host may have different ones */
	char machine[72];
	/* The address from which this rank reached the meeting point, if other hosts can reach it
	 * too; the port is where this rank listens for them. Family 0: other hosts can't reach
	 * it */
	union ko_net net;
	/* The interface that links from here must go through, which `net` is an address of; "":
	 * any. Known here alone */
	char iface[IF_NAMESIZE];
	/* 1 + the number of the rail that links from here are of; 0: of none. Known here alone */
	uint32_t rail_plus_1;
	uint32_t rdma; /* enum ko_rdma: the best device with an active port */
	/* The NUMA node of all processors in `cpus`, plus 1. 0: they are on several nodes, or it is
	 * not known */
	uint32_t node_plus_1;
	/* bit k: the rank may run on processor k; the first 1024 processors */
	uint64_t cpus[KO_CPU_WORDS];
};

/* Are two places on the same host? */
bool ko_place_same(const struct ko_place *a, const struct ko_place *b);

/* Are they on one host, on different NUMA nodes that are both known? */
bool ko_place_differ(const struct ko_place *a, const struct ko_place *b);

/* Is the RDMA device of this name a card? Software like rxe is not. */
bool ko_rdma_is_card(const char *device);

/* Does the file name a processor where the place's ranks may run? The file is one of the kernel's
 * lists of processors (local_cpus). Also true if it is not known: without the file or without
 * hwloc. */
bool ko_topo_is_near(const char *local_cpus, const struct ko_place *place);

/* Describes this process's place. Never fails. */
void ko_place_get(struct ko_place *out);

#endif
