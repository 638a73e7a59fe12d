/* The table of transports in this build, and the choice of one (ko_transport_choose). */
#include "comm/core/transports.h"

#include "comm/base/error.h"
#include "comm/transport/ofi/slots.h"
#include "comm/transport/shm.h"
#include "comm/transport/tcp.h"
#include "comm/transport/verbs/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct ko_link_ops *const ko_transports[] = {
	&ko_shm_ops,
#ifdef KO_HAVE_VERBS
	&ko_verbs_ops,
#endif
	&ko_tcp_ops,
#ifdef KO_HAVE_OFI
	&ko_ofi_ops,
#endif
	NULL,
};

static int find_name(const char *name)
{
	char known[128] = "";

	for (size_t i = 0; ko_transports[i]; i++) {
		size_t at = strlen(known);

		if (strcmp(ko_transports[i]->name, name) == 0)
			return 0;
		snprintf(known + at, sizeof(known) - at, " %s", ko_transports[i]->name);
	}
	return ko_fail(KOLO_ENOTSUP, "no transport called '%s'; this build has:%s", name, known);
}

int ko_transport_of_net(const char **out)
{
	*out = getenv("KOLO_NET");
	if (!*out || !**out)
		*out = "";
	else if (find_name(*out) < 0)
		return ko_fail(KOLO_EINVAL, "KOLO_NET=%s: %s", *out, kolo_last_error());
	return 0;
}

int ko_transport_choose(const char *name, const struct ko_place *a, const struct ko_place *b,
			const struct ko_link_ops **out)
{
	int rc = 0, tried = 0;

	for (size_t i = 0; ko_transports[i]; i++) {
		if (*name && strcmp(name, ko_transports[i]->name) != 0)
			continue;
		tried = 1;
		rc = ko_transports[i]->probe(a, b, *name != 0);
		*out = ko_transports[i];
		if (rc == 0)
			return 0;
	}
	return tried ? rc : find_name(name);
}
