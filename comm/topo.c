/* See topo.h. */
#include "topo.h"

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

/* ---- RDMA devices: what the kernel tells of them without its library ------------------------------------- */

#define RDMA_DEVICES "/sys/class/infiniband"

enum { PATH = 512 };

bool ko_rdma_is_card(const char *device)
{
	char path[PATH];

	snprintf(path, sizeof(path), RDMA_DEVICES "/%s/device", device);
	return access(path, F_OK) == 0;
}

/* "4: ACTIVE" */
static bool is_active(const char *device, const char *port)
{
	char path[PATH], state = 0;
	int fd;

	snprintf(path, sizeof(path), RDMA_DEVICES "/%.64s/ports/%.16s/state", device, port);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, &state, 1) < 1)
		state = 0;
	if (fd >= 0)
		close(fd);
	return state == '4';
}

static bool has_active_port(const char *device)
{
	char path[PATH];
	const struct dirent *port;
	bool active = false;
	DIR *ports;

	snprintf(path, sizeof(path), RDMA_DEVICES "/%s/ports", device);
	ports = opendir(path);
	while (ports && !active && (port = readdir(ports)))
		active = is_active(device, port->d_name);
	if (ports)
		closedir(ports);
	return active;
}

static enum ko_rdma best_rdma(void)
{
	enum ko_rdma best = KO_RDMA_NONE;
	const struct dirent *device;
	DIR *devices = opendir(RDMA_DEVICES);

	while (devices && best < KO_RDMA_CARD && (device = readdir(devices)))
		if (has_active_port(device->d_name))
			best = ko_rdma_is_card(device->d_name) ? KO_RDMA_CARD : KO_RDMA_SOFTWARE;
	if (devices)
		closedir(devices);
	return best;
}

/* ---- The place ------------------------------------------------------------------------------------------ */

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
	snprintf(out->machine, sizeof(out->machine), "%s/%llu", boot, (unsigned long long)net.st_ino);
}

bool ko_place_same(const struct ko_place *a, const struct ko_place *b)
{
	return strcmp(a->machine, b->machine) == 0;
}

/* Without a topology every processor counts as a core. */
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
bool ko_topo_is_near(const char *local_cpus, const struct ko_place *place)
{
	hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
	bool near = !cpus || hwloc_linux_read_path_as_cpumask(local_cpus, cpus) < 0;

	for (int cpu = 0; !near && cpu < KO_CPU_WORDS * 64; cpu++)
		near = place->cpus[cpu / 64] >> cpu % 64 & 1 && hwloc_bitmap_isset(cpus, (unsigned)cpu);
	hwloc_bitmap_free(cpus);
	return near;
}

/* The cores of `topology` that have a hardware thread this thread may run on, in the topology's order. */
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
bool ko_topo_is_near(const char *local_cpus, const struct ko_place *place)
{
	(void)local_cpus;
	(void)place;
	return true;
}

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
		cpus[0] = 0; /* the kernel would not say; there is at least one */
	return n ? n : 1;
}
