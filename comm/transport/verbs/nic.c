/* Chooses and opens the ports of RDMA cards that a link uses, and each port's address
 * (ko_verbs_open_nics). */
#include "comm/base/env.h"
#include "comm/base/error.h"
#include "comm/transport/verbs/end.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { MOST_PORTS = 64 };

/* A port of a card that was found. */
struct port {
	struct ibv_device *device;
	uint8_t number;
	int gbits; /* Gbit/s over all lanes */
	bool is_active, is_card, is_near;
};

int ko_verbs_settings(struct verbs_settings *out)
{
	int rc;

	if ((rc = ko_env_get(KO_ENV_VERBS_GID_INDEX, &out->gid_index)) < 0 ||
	    (rc = ko_env_get(KO_ENV_VERBS_SL, &out->sl)) < 0 ||
	    (rc = ko_env_get(KO_ENV_VERBS_TC, &out->traffic_class)) < 0 ||
	    (rc = ko_env_get(KO_ENV_VERBS_TIMEOUT, &out->timeout)) < 0 ||
	    (rc = ko_env_get(KO_ENV_VERBS_RETRIES, &out->retries)) < 0)
		return rc;
	return ko_env_get(KO_ENV_VERBS_QPS, &out->nqps);
}

int ko_verbs_fail(const struct verbs_nic *nic, const char *doing, int err)
{
	struct rlimit lock = { .rlim_cur = RLIM_INFINITY };

	getrlimit(RLIMIT_MEMLOCK, &lock);
	if (err == ENOMEM && lock.rlim_cur != RLIM_INFINITY)
		return ko_fail(
			KOLO_ENOMEM,
			"verbs (%s): %s: %s; this process may lock %llu KiB of memory: raise `ulimit -l`",
			nic->name, doing, strerror(err), (unsigned long long)lock.rlim_cur / 1024);
	return ko_fail(err == ENOMEM ? KOLO_ENOMEM : KOLO_ESYS, "verbs (%s): %s: %s", nic->name,
		       doing, strerror(err));
}

/* ---- Ports ----------------------------------------------------------------------------------- */

/* The port's rate in Gbit/s. active_speed has a bit for each speed of one lane, here with the loss
 * by coding taken off. active_width has a bit for each number of lanes. */
static int rate_of(const struct ibv_port_attr *attr)
{
	static const double speeds[] = { 2, 4, 8, 10, 14, 25, 50, 100 };
	static const int lanes[] = { 1, 4, 8, 12, 2 };
	double speed = 0;
	int width = 0;

	for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++)
		if (attr->active_speed >> i & 1)
			speed = speeds[i];
	for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++)
		if (attr->active_width >> i & 1)
			width = lanes[i];
	return (int)(speed * width);
}

/* Lists the ports of one device. iWARP has no writes with immediate data, so it is left out. */
static int look_at_device(struct ibv_device *device, const struct ko_place *here, struct port *out,
			  int room)
{
	struct ibv_context *context = NULL;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	char path[IBV_SYSFS_PATH_MAX + 32];
	int n = 0;

	if (device->transport_type == IBV_TRANSPORT_IB)
		context = ibv_open_device(device);
	if (!context)
		return 0;
	if (ibv_query_device(context, &attr) != 0)
		attr.phys_port_cnt = 0;
	snprintf(path, sizeof(path), "%s/device/local_cpus", device->ibdev_path);
	for (int p = 1; p <= attr.phys_port_cnt && n < room; p++) {
		if (ibv_query_port(context, (uint8_t)p, &port) != 0)
			continue;
		out[n++] = (struct port){ .device = device,
					  .number = (uint8_t)p,
					  .gbits = rate_of(&port),
					  .is_active = port.state == IBV_PORT_ACTIVE,
					  .is_card = ko_rdma_is_card(ibv_get_device_name(device)),
					  .is_near = ko_topo_is_near(path, here) };
	}
	ibv_close_device(context);
	return n;
}

/* Writes what ports there are, for an error text: "mlx5_0:1 mlx5_1:1 (down)". */
static const char *name_ports(const struct port *ports, int n, char *text, size_t len)
{
	size_t at = 0;

	snprintf(text, len, n ? "" : " none");
	for (int i = 0; i < n && at < len; i++) {
		snprintf(text + at, len - at, " %s:%u%s", ibv_get_device_name(ports[i].device),
			 ports[i].number, ports[i].is_active ? "" : " (down)");
		at += strlen(text + at);
	}
	return text;
}

/* The rank of a port: cards before software, near before far, then the fastest. Ports with the same
 * rank share the work. */
static int worth(const struct port *p)
{
	enum { FASTEST = 1 << 20 };

	return (p->is_card ? 4 * FASTEST : 0) + (p->is_near ? 2 * FASTEST : 0) + p->gbits;
}

static int choose_best(const struct port *ports, int n, const struct port *out[VERBS_NICS])
{
	int best = -1, chosen = 0;

	for (int i = 0; i < n; i++)
		if (ports[i].is_active && worth(&ports[i]) > best)
			best = worth(&ports[i]);
	for (int i = 0; i < n && chosen < VERBS_NICS; i++)
		if (ports[i].is_active && worth(&ports[i]) == best)
			out[chosen++] = &ports[i];
	/* a second port gains nothing for software */
	return chosen && !out[0]->is_card ? 1 : chosen;
}

static const struct port *find_port(const struct port *ports, int n, const char *name, size_t len)
{
	char with[VERBS_NAME * 2];

	for (int i = 0; i < n; i++) {
		const char *device = ibv_get_device_name(ports[i].device);

		snprintf(with, sizeof(with), "%s:%u", device, ports[i].number);
		if (ports[i].is_active &&
		    ((strlen(with) == len && memcmp(with, name, len) == 0) ||
		     (strlen(device) == len && memcmp(device, name, len) == 0)))
			return &ports[i];
	}
	return NULL;
}

/* Chooses the ports that KOLO_VERBS_DEVICE names, separated by commas. Returns how many, or
 * KOLO_EINVAL. */
static int choose_named(const char *names, const struct port *ports, int n,
			const struct port *out[VERBS_NICS])
{
	const char *rest = names;
	char text[512];
	int chosen = 0;

	while (*rest) {
		size_t len = strcspn(rest, ",");
		const struct port *p = find_port(ports, n, rest, len);

		if (!p || chosen == VERBS_NICS)
			return ko_fail(
				KOLO_EINVAL,
				"KOLO_VERBS_DEVICE=%s: want at most %d active ports; this host has:%s",
				names, VERBS_NICS, name_ports(ports, n, text, sizeof(text)));
		out[chosen++] = p;
		rest += len + (rest[len] == ',');
	}
	return chosen;
}

/* A rail has one of the ports, in turn. All other links share them. Returns how many are left. */
static int keep_those_of_rail(const struct ko_place *here, const struct port *chosen[VERBS_NICS],
			      int n)
{
	if (!here->rail_plus_1 || n < 1)
		return n;
	chosen[0] = chosen[(int)(here->rail_plus_1 - 1) % n];
	return 1;
}

/* ---- Addresses of a port --------------------------------------------------------------------- */

static bool is_mapped_ipv4(const union ibv_gid *gid)
{
	static const unsigned char prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

static bool is_of(const union ibv_gid *gid, const union ko_net *net)
{
	if (net->any.sa_family == AF_INET)
		return is_mapped_ipv4(gid) && memcmp(gid->raw + 12, &net->v4.sin_addr, 4) == 0;
	return net->any.sa_family == AF_INET6 && memcmp(gid->raw, &net->v6.sin6_addr, 16) == 0;
}

/* The rank of an address on RoCE. Best is the version that routers forward (RoCE v2). Then the
 * address where other hosts reach this rank, then any IPv4 address. */
static int worth_of_gid(const struct ibv_gid_entry *e, const union ko_net *net)
{
	bool link_local = e->gid.raw[0] == 0xfe && e->gid.raw[1] == 0x80;

	return (e->gid_type == IBV_GID_TYPE_ROCE_V2 ? 16 : 0) + (is_of(&e->gid, net) ? 8 : 0) +
	       (is_mapped_ipv4(&e->gid) ? 4 : 0) + (link_local ? 0 : 2);
}

static int choose_gid(struct verbs_nic *nic, const struct ko_place *here)
{
	enum { MOST = 256 };
	struct ibv_gid_entry *all = calloc(MOST, sizeof(*all));
	ssize_t n = all ? ibv_query_gid_table(nic->context, all, MOST, 0) : -ENOMEM;
	int best = -1;

	if (n < 0) {
		free(all);
		return ko_verbs_fail(nic, "asking for the port's addresses (GIDs)", (int)-n);
	}

	for (ssize_t i = 0; i < n; i++) {
		if (all[i].port_num != nic->port || worth_of_gid(&all[i], &here->net) <= best)
			continue;
		best = worth_of_gid(&all[i], &here->net);
		nic->gid = all[i];
	}
	free(all);
	return best < 0
		       ? ko_fail(KOLO_ENOTSUP,
				 "verbs (%s): the port has no address (GID): give its network interface one",
				 nic->name)
		       : 0;
}

/* Finds the address at `index`; -1: chooses one on RoCE, and takes index 0 on InfiniBand. */
static int find_gid(struct verbs_nic *nic, int64_t index, const struct ko_place *here)
{
	bool ethernet = nic->attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	int err;

	if (index < 0 && ethernet)
		return choose_gid(nic, here);
	index = index < 0 ? 0 : index;
	err = ibv_query_gid_ex(nic->context, nic->port, (uint32_t)index, &nic->gid, 0);
	return err ? ko_fail(KOLO_EINVAL,
			     "verbs (%s): no address (GID) at index %lld: %s; see KOLO_VERBS_GID_INDEX",
			     nic->name, (long long)index, strerror(err))
		   : 0;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int open_nic(const struct port *p, int64_t gid_index, const struct ko_place *here,
		    struct verbs_nic *nic)
{
	int err;

	snprintf(nic->name, sizeof(nic->name), "%.26s:%u", ibv_get_device_name(p->device),
		 p->number);
	nic->port = p->number;
	nic->context = ibv_open_device(p->device);
	if (!nic->context)
		return ko_verbs_fail(nic, "opening the device", errno);
	err = ibv_query_port(nic->context, nic->port, &nic->attr);
	return err ? ko_verbs_fail(nic, "asking for the port", err)
		   : find_gid(nic, gid_index, here);
}

static int open_chosen(struct verbs_end *e, struct ibv_device **devices, int ndevices,
		       const struct ko_place *here)
{
	const char *names = getenv("KOLO_VERBS_DEVICE");
	const struct port *chosen[VERBS_NICS];
	struct port ports[MOST_PORTS];
	int n = 0, nics, rc = 0;
	char text[512];

	for (int d = 0; d < ndevices; d++)
		n += look_at_device(devices[d], here, ports + n, MOST_PORTS - n);
	nics = names && *names ? choose_named(names, ports, n, chosen)
			       : choose_best(ports, n, chosen);
	nics = keep_those_of_rail(here, chosen, nics);
	if (nics == 0)
		return ko_fail(
			KOLO_ENOTSUP,
			"verbs: no RDMA port on %s is active; it has %d devices; those that can be opened have the ports:%s",
			here->host, ndevices, name_ports(ports, n, text, sizeof(text)));
	for (int i = 0; rc == 0 && i < nics; i++) {
		e->nnics++;
		rc = open_nic(chosen[i], e->settings.gid_index, here, &e->nics[i]);
	}
	return nics < 0 ? nics : rc;
}

int ko_verbs_open_nics(struct verbs_end *e, const struct ko_place *here)
{
	struct ibv_device **devices;
	int n = 0, rc;

	/* Before Linux 5.12 a forked child could get the pages that the card writes. This call
	 * prevents it. */
	ibv_fork_init();
	devices = ibv_get_device_list(&n);
	if (!devices)
		return ko_fail(KOLO_ENOTSUP, "verbs: this host can't list RDMA devices: %s",
			       strerror(errno));
	rc = open_chosen(e, devices, n, here);
	ibv_free_device_list(devices);
	return rc;
}
