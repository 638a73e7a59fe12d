/* Where a rank lives. hwloc is used here and nowhere else, and only where the build found it. */
#ifndef COMM_SYS_TOPO_H
#define COMM_SYS_TOPO_H

#include "comm/sys/net.h"

#include <stdbool.h>
#include <stdint.h>

enum { KO_CPU_WORDS = 16 };

/* What plays an RDMA device that a link through verbs can use: best last. */
enum ko_rdma { KO_RDMA_NONE, KO_RDMA_SOFTWARE, KO_RDMA_CARD };

/* Two ranks with equal `machine` reach each other's abstract sockets, and share memory. The names are for people. Plain
 * bytes: it travels. */
struct ko_place {
	char host[64];
	/* The kernel's boot id, or the host name where there is none, and its namespace of sockets: containers may have each
	 * their own */
	char machine[72];
	/* The address from which it reached the meeting point, where other hosts reach that too, with the port where it listens
	 * for them; family 0: nowhere */
	union ko_net net;
	uint32_t rdma; /* enum ko_rdma: the best active port */
	uint32_t node; /* 1 + the NUMA node that all these processors belong to; 0: several, or not known */
	uint64_t cpus[KO_CPU_WORDS]; /* a bit for each processor that it may run on: the first 1024 */
};

/* Are they the same host? */
bool ko_place_same(const struct ko_place *a, const struct ko_place *b);

/* Are they on the same host and, as both know, on different NUMA nodes of it? */
bool ko_place_differ(const struct ko_place *a, const struct ko_place *b);

/* Is an RDMA device of this name a card, and not software? */
bool ko_rdma_is_card(const char *device);

/* Does the file, one of the kernel's lists of processors (local_cpus), name one where the place's ranks may run? true as
 * well where nobody can tell: without the file, and without hwloc. */
bool ko_topo_is_near(const char *local_cpus, const struct ko_place *place);

/* Never fails. */
void ko_place_get(struct ko_place *out);

#endif
