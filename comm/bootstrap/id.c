/* Ids. kolo_id_create serves a new meeting point, and writes what ranks must know of it into 128
 * bytes. ko_meeting_of_id reads it from there. */
#include "comm/bootstrap/boot.h"
#include "comm/bootstrap/wire.h"
#include "comm/sys/net.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

int ko_meeting_of_id(const struct kolo_id *id, struct ko_meeting *out)
{
	struct ko_boot_id layout;

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
