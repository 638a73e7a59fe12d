/* TCP addresses as text and numbers, the interfaces of KOLO_IFACE, listening and connecting. See
 * net.h. */
#include "comm/sys/net.h"

#include "comm/base/clock.h"
#include "comm/base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 3 }; /* of a question to name servers; the resolver itself repeats each */

socklen_t ko_net_len(const union ko_net *a)
{
	return a->any.sa_family == AF_INET6 ? sizeof(a->v6) : sizeof(a->v4);
}

uint16_t ko_net_port(const union ko_net *a)
{
	return ntohs(a->any.sa_family == AF_INET6 ? a->v6.sin6_port : a->v4.sin_port);
}

void ko_net_set_port(union ko_net *a, uint16_t port)
{
	if (a->any.sa_family == AF_INET6)
		a->v6.sin6_port = htons(port);
	else
		a->v4.sin_port = htons(port);
}

const char *ko_net_text(const union ko_net *a, char out[KO_NET_TEXT])
{
	const void *bytes =
		a->any.sa_family == AF_INET6 ? (const void *)&a->v6.sin6_addr : &a->v4.sin_addr;

	if (!inet_ntop(a->any.sa_family, bytes, out, KO_NET_TEXT))
		out[0] = 0;
	return out;
}

int ko_net_same(const union ko_net *a, const union ko_net *b)
{
	if (a->any.sa_family != b->any.sa_family)
		return 0;
	return a->any.sa_family == AF_INET6 ? !memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, 16)
					    : a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
}

/* Copies an address that can be used. Returns 0 for families other than IPv4 and IPv6, and for
 * link-local addresses, which mean nothing without their interface. */
static int take(const struct sockaddr *from, union ko_net *out)
{
	if (!from || (from->sa_family != AF_INET && from->sa_family != AF_INET6))
		return 0;
	if (from->sa_family == AF_INET6 &&
	    IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)from)->sin6_addr))
		return 0;
	memset(out, 0, sizeof(*out));
	memcpy(out, from, from->sa_family == AF_INET6 ? sizeof(out->v6) : sizeof(out->v4));
	return 1;
}

int ko_net_resolve(const char *host, union ko_net out[KO_NET_MAX], int *n)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *list;
	int err = getaddrinfo(host, NULL, &hints, &list);

	*n = 0;
	/* All ranks of a job ask at the same moment, and a name server that is busy says so. */
	for (int again = 1; err == EAI_AGAIN && again < TRIES; again++) {
		nanosleep(&(struct timespec){ .tv_nsec = again * 100000000L }, NULL);
		err = getaddrinfo(host, NULL, &hints, &list);
	}
	if (err)
		return ko_fail(KOLO_EUNREACH, "the name '%s' has no address: %s", host,
			       err == EAI_SYSTEM ? strerror(errno) : gai_strerror(err));
	for (const struct addrinfo *a = list; a && *n < KO_NET_MAX; a = a->ai_next)
		*n += take(a->ai_addr, &out[*n]);
	freeaddrinfo(list);
	return *n ? 0
		  : ko_fail(KOLO_EUNREACH, "the name '%s' has neither an IPv4 nor an IPv6 address",
			    host);
}

/* Writes the names of all interfaces, "lo, eth0". */
static void list_interfaces(const struct ifaddrs *list, char *out, size_t room)
{
	size_t at = 0;

	out[0] = 0;
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		int seen = 0;

		for (const struct ifaddrs *k = list; k != i; k = k->ifa_next)
			seen |= !strcmp(k->ifa_name, i->ifa_name);
		if (!seen && at < room)
			at += (size_t)snprintf(out + at, room - at, "%s%s", at ? ", " : "",
					       i->ifa_name);
	}
}

/* Copies what KOLO_IFACE lists at place k, which starts again at its end: the name or address of an
 * interface. Returns how many it lists. */
static int name_in_list(int k, char *out, size_t room)
{
	const char *list = getenv("KOLO_IFACE"), *at = list;
	int n = 1;

	if (!list || !*list)
		return 0;
	for (const char *p = list; *p; p++)
		n += *p == ',';
	for (k %= n; k > 0; k--)
		at = strchr(at, ',') + 1;
	snprintf(out, room, "%.*s", (int)strcspn(at, ","), at);
	return n;
}

/* Finds the addresses of the interface with this name, or with this address. */
static int find_iface(const char *name, struct ko_iface out[KO_NET_MAX], int *n)
{
	char text[KO_NET_TEXT], there[256];
	struct ifaddrs *list;

	*n = 0;
	if (getifaddrs(&list) < 0)
		return ko_fail(KOLO_ESYS, "KOLO_IFACE=%s: getifaddrs: %s", getenv("KOLO_IFACE"),
			       strerror(errno));
	for (const struct ifaddrs *i = list; i && *n < KO_NET_MAX; i = i->ifa_next) {
		struct ko_iface *found = &out[*n];

		if (!take(i->ifa_addr, &found->at) ||
		    (strcmp(i->ifa_name, name) && strcmp(ko_net_text(&found->at, text), name)))
			continue;
		snprintf(found->name, sizeof(found->name), "%s", i->ifa_name);
		++*n;
	}
	list_interfaces(list, there, sizeof(there));
	freeifaddrs(list);
	return *n ? 0
		  : ko_fail(KOLO_EINVAL,
			    "KOLO_IFACE=%s: no interface with the name or address '%s' is up and has an "
			    "IPv4 or IPv6 address; there are: %s",
			    getenv("KOLO_IFACE"), name, there);
}

int ko_net_iface(union ko_net out[KO_NET_MAX], int *n)
{
	struct ko_iface found[KO_NET_MAX];
	char name[KO_NET_TEXT];
	int rc;

	*n = 0;
	if (!name_in_list(0, name, sizeof(name)))
		return 0;
	rc = find_iface(name, found, n);
	for (int k = 0; k < *n; k++)
		out[k] = found[k].at;
	return rc;
}

int ko_net_paces(bool *out)
{
	char name[16] = ""; /* the kernel's names are shorter */
	socklen_t len = sizeof(name) - 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*out = false;
	if (fd < 0)
		return errno == EAFNOSUPPORT ? 0
					     : ko_fail(KOLO_ESYS, "socket: %s", strerror(errno));
	getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len);
	close(fd);
	*out = strncmp(name, "bbr", 3) == 0;
	return 0;
}

bool ko_net_names_rails(void)
{
	char name[KO_NET_TEXT];

	return name_in_list(0, name, sizeof(name)) > 1;
}

int ko_net_rail(int k, struct ko_iface *out)
{
	struct ko_iface found[KO_NET_MAX];
	char name[KO_NET_TEXT];
	int n = 0, rc;

	*out = (struct ko_iface){ .name = "" };
	if (name_in_list(k, name, sizeof(name)) < 2)
		return 0;
	rc = find_iface(name, found, &n);
	if (rc == 0)
		*out = found[0];
	return rc;
}

int ko_net_carried(const char *name, uint32_t *out, uint32_t *in)
{
	struct ifaddrs *list;
	int rc = -1;

	if (getifaddrs(&list) < 0)
		return -1;
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		const struct rtnl_link_stats *stats = i->ifa_data;

		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_PACKET || !stats ||
		    strcmp(i->ifa_name, name))
			continue;
		*out = stats->tx_bytes;
		*in = stats->rx_bytes;
		rc = 0;
	}
	freeifaddrs(list);
	return rc;
}

/* Closes the socket and keeps errno. Returns -1. */
static int give_up(int fd)
{
	int err = errno;

	close(fd);
	errno = err;
	return -1;
}

int ko_net_listen(union ko_net *at)
{
	socklen_t len = sizeof(*at);
	int fd = socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;

	if (fd < 0)
		return -1;
	/* Lingering connections of an earlier job must not block the port. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(fd, &at->any, ko_net_len(at)) == 0 && listen(fd, SOMAXCONN) == 0 &&
	    getsockname(fd, &at->any, &len) == 0)
		return fd;
	return give_up(fd);
}

void ko_net_hurry(int fd)
{
	int yes = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

void ko_net_acknowledge_later(int fd)
{
	int no = 0;

	setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &no, sizeof(no));
}

void ko_net_keep_alive(int fd)
{
	enum { IDLE_S = 10, BETWEEN_S = 5, TIMES = 3, SILENT_MS = 20000 };
	int yes = 1, idle = IDLE_S, between = BETWEEN_S, times = TIMES, silent = SILENT_MS;

	ko_net_hurry(fd);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof(between));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent, sizeof(silent));
}

/* Binds the socket to an interface, which older kernels allow root alone, and to its address. */
static int bind_to(int fd, const struct ko_iface *by)
{
	int late = 1;

	(void)!setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, by->name, sizeof(by->name));
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &late, sizeof(late));
	return bind(fd, &by->at.any, ko_net_len(&by->at));
}

int ko_net_start(const union ko_net *to, const struct ko_iface *by)
{
	int fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && by && *by->name && bind_to(fd, by) < 0)
		return give_up(fd);
	if (fd < 0 || connect(fd, &to->any, ko_net_len(to)) == 0 || errno == EINPROGRESS ||
	    errno == EINTR)
		return fd;
	return give_up(fd);
}

int ko_net_is_through(int fd, int ms)
{
	struct pollfd way = { .fd = fd, .events = POLLOUT };
	int rc = poll(&way, 1, ms), err = 0;
	socklen_t len = sizeof(err);

	if (rc == 0 || (rc < 0 && errno == EINTR))
		return 0;
	if (rc < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		return -1;
	errno = err;
	return err ? -1 : 1;
}

int ko_net_dial(const union ko_net *to, int64_t deadline)
{
	int fd = ko_net_start(to, NULL), through = 0;

	while (fd >= 0 && through == 0) {
		int64_t left = deadline - ko_now_ms();

		through = ko_net_is_through(fd, left < 0 ? 0 : left > 1000 ? 1000 : (int)left);
		if (through == 0 && left <= 0) {
			errno = EAGAIN;
			through = -1;
		}
	}
	return through < 0 ? give_up(fd) : fd;
}

int ko_net_is_loopback(const union ko_net *a)
{
	if (a->any.sa_family == AF_INET)
		return ntohl(a->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}
