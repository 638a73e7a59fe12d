/* Finds where this process runs (ko_place_get), compares places, and counts cores (kolo_cores). */
#include "comm/sys/topo.h"

#include "kolo/kolo.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef KO_HAVE_HWLOC
#include <hwloc.h>
#include <hwloc/linux.h>
#endif

/* ---- RDMA devices, as the kernel lists them in /sys ------------------------------------------ */

#define RDMA_DEVICES "/sys/class/infiniband"

enum { PATH = 512 };

/* The first character of a device's file; 0: it can't be read. */
static char first_of(const char *device, const char *file)
{
	char path[PATH], first = 0;
	int fd;

	snprintf(path, sizeof(path), RDMA_DEVICES "/%.64s/%.64s", device, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, &first, 1) < 1)
		first = 0;
	if (fd >= 0)
		close(fd);
	return first;
}

/* Only software has a file `parent`: rxe has there the network interface that it uses. */
bool ko_rdma_is_card(const char *device)
{
	char path[PATH];

	snprintf(path, sizeof(path), RDMA_DEVICES "/%s/device", device);
	return access(path, F_OK) == 0 && !first_of(device, "parent");
}

#ifdef KO_HAVE_VERBS
/* Does `says` return true for one of the names in the device's folder? */
static bool has_one(const char *device, const char *folder,
		    bool (*says)(const char *device, const char *name))
{
	char path[PATH];
	const struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), RDMA_DEVICES "/%s/%s", device, folder);
	dir = opendir(path);
	while (dir && !found && (entry = readdir(dir)))
		found = entry->d_name[0] != '.' && says(device, entry->d_name);
	if (dir)
		closedir(dir);
	return found;
}

/* An active port has the state "4: ACTIVE". */
static bool is_active(const char *device, const char *port)
{
	char file[40];

	snprintf(file, sizeof(file), "ports/%.16s/state", port);
	return first_of(device, file) == '4';
}

/* A container may see a device that it may not open. */
static bool may_open(const char *device, const char *name)
{
	char path[PATH];

	(void)device;
	snprintf(path, sizeof(path), "/dev/infiniband/%.64s", name);
	return access(path, R_OK | W_OK) == 0;
}

/* Only devices of type "1: CA" count. iWARP (4) has no writes with immediate data, and other types
 * are known to their own libraries only. */
static enum ko_rdma rdma_of(const char *device)
{
	if (device[0] == '.' || first_of(device, "node_type") != '1' ||
	    !has_one(device, "ports", is_active))
		return KO_RDMA_NONE;
	if (!ko_rdma_is_card(device))
		return KO_RDMA_SOFTWARE;
	return has_one(device, "device/infiniband_verbs", may_open) ? KO_RDMA_CARD : KO_RDMA_NONE;
}

static enum ko_rdma best_rdma(void)
{
	enum ko_rdma best = KO_RDMA_NONE, this;
	const struct dirent *device;
	DIR *devices = opendir(RDMA_DEVICES);

	while (devices && (device = readdir(devices))) {
		this = rdma_of(device->d_name);
		best = this > best ? this : best;
	}
	if (devices)
		closedir(devices);
	return best;
}
#else
static enum ko_rdma best_rdma(void)
{
	return KO_RDMA_NONE;
}
#endif

/* ---- The kernel's lists of processors -------------------------------------------------------- */

#ifdef KO_HAVE_HWLOC
/* Of the processors where the place's ranks may run: how many does the file name, and how many not?
 * False if it can't be read. */
static bool count_cpus(const char *file, const struct ko_place *place, int *inside, int *outside)
{
	hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
	bool known = cpus && hwloc_linux_read_path_as_cpumask(file, cpus) == 0;

	*inside = *outside = 0;
	for (int cpu = 0; known && cpu < KO_CPU_WORDS * 64; cpu++)
		if (place->cpus[cpu / 64] >> cpu % 64 & 1)
			++*(hwloc_bitmap_isset(cpus, (unsigned)cpu) ? inside : outside);
	hwloc_bitmap_free(cpus);
	return known;
}
#else
static bool count_cpus(const char *file, const struct ko_place *place, int *inside, int *outside)
{
	(void)file;
	(void)place;
	*inside = *outside = 0;
	return false;
}
#endif

bool ko_topo_is_near(const char *local_cpus, const struct ko_place *place)
{
	int inside, outside;

	return !count_cpus(local_cpus, place, &inside, &outside) || inside > 0;
}

/* The field `node_plus_1` of a place: for the NUMA node where this thread runs now. */
static uint32_t find_node(const struct ko_place *place)
{
	int inside, outside;
	char path[PATH];
	unsigned node;

	if (getcpu(NULL, &node) < 0)
		return 0;
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpumap", node);
	return count_cpus(path, place, &inside, &outside) && inside && !outside ? 1 + node : 0;
}

/* ---- The place ------------------------------------------------------------------------------- */

void ko_place_get(struct ko_place *out)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	char boot[40] = "";
	struct stat net;
	cpu_set_t set;
	ssize_t got;

	memset(out, 0, sizeof(*out));
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		for (int cpu = 0; cpu < KO_CPU_WORDS * 64; cpu++)
			if (CPU_ISSET(cpu, &set))
				out->cpus[cpu / 64] |= UINT64_C(1) << cpu % 64;
	out->node_plus_1 = find_node(out);
	out->rdma = best_rdma();
	got = fd < 0 ? -1 : read(fd, boot, sizeof(boot) - 1);
	if (fd >= 0)
		close(fd);
	gethostname(out->host, sizeof(out->host) - 1);
	if (got > 0)
		boot[strcspn(boot, "\n")] = 0;
	else
		snprintf(boot, sizeof(boot), "%.39s", out->host);
	if (stat("/proc/self/ns/net", &net) < 0)
		net.st_ino = 0;
	snprintf(out->machine, sizeof(out->machine), "%s/%llu", boot,
		 (unsigned long long)net.st_ino);
}

bool ko_place_differ(const struct ko_place *a, const struct ko_place *b)
{
	return ko_place_same(a, b) && a->node_plus_1 && b->node_plus_1 &&
	       a->node_plus_1 != b->node_plus_1;
}

bool ko_place_same(const struct ko_place *a, const struct ko_place *b)
{
	return strcmp(a->machine, b->machine) == 0;
}

/* Lists the processors where this thread may run. Without hwloc each of them counts as a core. */
static int allowed_cpus(int *cpus, int max)
{
	cpu_set_t set;
	int n = 0;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		CPU_ZERO(&set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		if (n < max)
			cpus[n] = cpu;
		n++;
	}
	return n;
}

#ifdef KO_HAVE_HWLOC
/* Lists the cores that have a hardware thread where this thread may run, in the topology's
 * order. */
static int allowed_cores(hwloc_topology_t topology, int *cpus, int max)
{
	hwloc_bitmap_t allowed = hwloc_bitmap_alloc(), here = hwloc_bitmap_alloc();
	hwloc_obj_t core = NULL;
	int n = 0;

	if (allowed && here && hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_THREAD) == 0) {
		while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core))) {
			hwloc_bitmap_and(here, core->cpuset, allowed);
			if (hwloc_bitmap_iszero(here))
				continue;
			if (n < max)
				cpus[n] = hwloc_bitmap_first(here);
			n++;
		}
	}
	hwloc_bitmap_free(allowed);
	hwloc_bitmap_free(here);
	return n;
}

static int hwloc_cores(int *cpus, int max)
{
	hwloc_topology_t topology;
	int n = 0;

	if (hwloc_topology_init(&topology) < 0)
		return 0;
	if (hwloc_topology_load(topology) == 0)
		n = allowed_cores(topology, cpus, max);
	hwloc_topology_destroy(topology);
	return n;
}
#else
static int hwloc_cores(int *cpus, int max)
{
	(void)cpus;
	(void)max;
	return 0;
}
#endif

int kolo_cores(int *cpus, int max)
{
	int n = hwloc_cores(cpus, max);

	if (n == 0)
		n = allowed_cpus(cpus, max);
	if (n == 0 && max > 0)
		cpus[0] = 0; /* the kernel did not say; there is at least one */
	return n ? n : 1;
}
