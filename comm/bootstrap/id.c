/* Ids. kolo_id_create serves a new meeting point, and writes what ranks must know of it into 128
 * bytes; kolo_id_at writes the address of one that rank 0 will serve. ko_meeting_of_id reads it
 * from there. */
#include "comm/bootstrap/boot.h"
#include "comm/bootstrap/wire.h"
#include "comm/sys/net.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

int ko_meeting_at(const char *what, const char *address, const char *job, struct ko_meeting *out)
{
	const char *colon = strrchr(address, ':');
	size_t len = colon ? (size_t)(colon - address) : 0;
	char text[512];

	*out = (struct ko_meeting){ .nports = 1 };
	if (len > 1 && address[0] == '[' && address[len - 1] == ']')
		snprintf(out->host, sizeof(out->host), "%.*s", (int)len - 2, address + 1);
	else
		snprintf(out->host, sizeof(out->host), "%.*s", (int)len, address);
	if (!*out->host || strlen(address) >= sizeof(out->host) ||
	    ko_boot_number(colon + 1, 1, 65535, &out->port) < 0 ||
	    (address[0] != '[' && strchr(out->host, ':')))
		return ko_fail(
			KOLO_EINVAL,
			"%s%s: want HOST:PORT, with a port in [1, 65535] and an IPv6 address in "
			"brackets",
			what, address);
	snprintf(text, sizeof(text), "%s %s", address, job);
	ko_boot_identify(out, text);
	snprintf(out->what, sizeof(out->what), "%s%s", what, address);
	return 0;
}

int kolo_id_at(const char *address, struct kolo_id *out)
{
	struct ko_boot_at layout = { .magic = KO_BOOT_AT_MAGIC };
	struct ko_meeting m;
	int rc;

	if (!address || !out)
		return ko_fail(KOLO_EINVAL, "kolo_id_at: %s is NULL", out ? "address" : "out");
	memset(out, 0, sizeof(*out));
	if ((rc = ko_meeting_at("kolo_id_at: ", address, "", &m)) < 0)
		return rc;
	if (strlen(address) >= sizeof(layout.address))
		return ko_fail(KOLO_EINVAL, "kolo_id_at: %s: want at most %zu characters", address,
			       sizeof(layout.address) - 1);
	memcpy(layout.address, address, strlen(address));
	memcpy(out, &layout, sizeof(layout));
	return 0;
}

int ko_meeting_of_id(const struct kolo_id *id, struct ko_meeting *out)
{
	struct ko_boot_id layout;
	struct ko_boot_at at;

	memcpy(&at, id, sizeof(at));
	at.address[sizeof(at.address) - 1] = 0;
	if (at.magic == KO_BOOT_AT_MAGIC)
		return ko_meeting_at("the id of ", at.address, "", out);
	memcpy(&layout, id, sizeof(layout));
	layout.host[sizeof(layout.host) - 1] = 0;
	if (layout.magic != KO_BOOT_ID_MAGIC)
		return ko_fail(KOLO_EINVAL, "these 128 bytes are no id made by kolo_id_create");
	*out = (struct ko_meeting){ .tag = layout.tag,
				    .port = layout.port,
				    .nports = 1,
				    .pid = layout.pid,
				    .pidns = layout.pidns };
	memcpy(out->secret, layout.secret, sizeof(out->secret));
	memcpy(out->proof, layout.proof, sizeof(out->proof));
	memcpy(out->host, layout.host, sizeof(layout.host));
	snprintf(out->what, sizeof(out->what), "%s port %d", layout.host, layout.port);
	return 0;
}

/* Listens on KOLO_IFACE's address, or else on the loopback interface: then only this host reaches
 * it. */
static int listen_for_id(struct ko_boot_id *id, int *listener)
{
	union ko_net at[KO_NET_MAX];
	int n, rc = ko_net_iface(at, &n);

	if (rc < 0)
		return rc;
	if (n == 0)
		at[0].v4 = (struct sockaddr_in){ .sin_family = AF_INET,
						 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	*listener = ko_net_listen(&at[0]);
	ko_net_text(&at[0], id->host);
	if (*listener < 0)
		return ko_fail(KOLO_ESYS, "kolo_id_create: opening a TCP port at %s: %s", id->host,
			       strerror(errno));
	id->port = ko_net_port(&at[0]);
	return 0;
}

int kolo_id_create(struct kolo_id *out)
{
	struct ko_boot_id layout = { .magic = KO_BOOT_ID_MAGIC,
				     .pid = getpid(),
				     .pidns = ko_boot_pidns() };
	struct ko_meeting m;
	int rc, listener;

	if (!out)
		return ko_fail(KOLO_EINVAL, "kolo_id_create: out is NULL");
	memset(out, 0, sizeof(*out));
	if (getrandom(layout.secret, sizeof(layout.secret), 0) != sizeof(layout.secret) ||
	    getrandom(layout.proof, sizeof(layout.proof), 0) != sizeof(layout.proof) ||
	    getrandom(&layout.tag, sizeof(layout.tag), 0) != sizeof(layout.tag))
		return ko_fail(KOLO_ESYS, "kolo_id_create: getrandom: %s", strerror(errno));
	rc = listen_for_id(&layout, &listener);
	if (rc < 0)
		return rc;
	memcpy(out, &layout, sizeof(layout));
	if ((rc = ko_meeting_of_id(out, &m)) < 0 || (rc = ko_boot_serve(&m, listener)) < 0)
		memset(out, 0, sizeof(*out));
	return rc;
}
