/* Opens the socket at which rank 0 serves a meeting point that the environment names
 * (ko_boot_listen). */
#include "comm/bootstrap/wire.h"
#include "comm/sys/net.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

static int listen_name(const struct ko_meeting *m, int *out)
{
	struct sockaddr_un at;
	socklen_t len = ko_boot_address(m, &at);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, SOMAXCONN) == 0) {
		*out = fd;
		return 0;
	}
	err = errno;
	if (fd >= 0)
		close(fd);
	if (err != EADDRINUSE)
		return ko_fail(KOLO_ESYS, "%s: opening the abstract socket @%s: %s", m->what,
			       m->name, strerror(err));
	return ko_fail(
		KOLO_EUNREACH,
		"%s: another process already waits for this job's ranks (abstract socket @%s): a second rank "
		"0, or another job with the same name. Give each job its own KOLO_JOB",
		m->what, m->name);
}

/* Writes the addresses, "10.0.0.7, ::1". */
static void list_addresses(const union ko_net *at, int n, char *out, size_t room)
{
	char text[KO_NET_TEXT];
	size_t used = 0;

	out[0] = 0;
	for (int i = 0; i < n && used < room; i++)
		used += (size_t)snprintf(out + used, room - used, "%s%s", i ? ", " : "",
					 ko_net_text(&at[i], text));
}

/* Keeps those of at[0..n) that are also in iface[0..niface). Returns how many. */
static int keep_common(union ko_net *at, int n, const union ko_net *iface, int niface)
{
	int kept = 0;

	for (int i = 0; i < n; i++)
		for (int k = 0; k < niface; k++)
			if (ko_net_same(&at[i], &iface[k])) {
				at[kept++] = at[i];
				break;
			}
	return kept;
}

/* Listens on the first free port, at the first address that belongs to this host. */
static int listen_port(const struct ko_meeting *m, union ko_net *at, int n, int *out)
{
	char there[256];
	int taken = 0, err = 0;

	for (int i = 0; i < n; i++)
		for (int k = 0; k < m->nports; k++) {
			ko_net_set_port(&at[i], (uint16_t)(m->port + k));
			*out = ko_net_listen(&at[i]);
			if (*out >= 0)
				return 0;
			err = errno;
			taken |= err == EADDRINUSE;
			if (taken && m->nports == 1)
				/* Another rank 0 may have taken it: do not try further addresses,
				 * or ranks would find one or the other */
				n = i + 1;
		}
	list_addresses(at, n, there, sizeof(there));
	if (taken && m->nports == 1)
		return ko_fail(
			KOLO_EUNREACH,
			"%s: port %d is taken by another program on this host (%s); choose another",
			m->what, m->port, there);
	if (taken)
		return ko_fail(KOLO_EUNREACH,
			       "%s: the ports %d to %d are all taken on this host (%s)", m->what,
			       m->port, m->port + m->nports - 1, there);
	return ko_fail(
		KOLO_EUNREACH,
		"%s: rank 0 can't serve %s: %s. The address must be one of the host that rank 0 runs on",
		m->what, there, strerror(err));
}

int ko_boot_listen(const struct ko_meeting *m, int *out)
{
	union ko_net at[KO_NET_MAX], iface[KO_NET_MAX];
	int n, niface, rc;

	if (*m->name)
		return listen_name(m, out);
	if ((rc = ko_net_iface(iface, &niface)) < 0 || (rc = ko_net_resolve(m->host, at, &n)) < 0)
		return rc;
	if (niface)
		n = keep_common(at, n, iface, niface);
	if (n == 0)
		return ko_fail(KOLO_EINVAL,
			       "%s is no address of the interface that KOLO_IFACE names", m->what);
	return listen_port(m, at, n, out);
}
