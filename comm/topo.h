/* Where a rank lives. hwloc is used here and nowhere else, and only where the build found it. */
#ifndef KO_TOPO_H
#define KO_TOPO_H

#include <stdint.h>

enum { KO_CPU_WORDS = 16 };

/* Two ranks with equal `machine` run under one kernel. The names are for people. Plain bytes: it travels. */
struct ko_place {
	char host[64];
	char machine[40];            /* the kernel's boot id, or the host name where there is none */
	uint64_t cpus[KO_CPU_WORDS]; /* a bit for each processor that it may run on: the first 1024 */
};

/* Never fails. */
void ko_place_get(struct ko_place *out);

#endif
