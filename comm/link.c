/* The table of transports: what is built in is decided here. */
#include "link.h"

#include "error.h"
#include "ofi.h"
#include "shm.h"
#include "tcp.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct ko_link_ops *const ko_links[] = {
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

const char *ko_stores_name(enum ko_stores stores)
{
	return stores == KO_STREAMING ? "streaming" : "ordinary";
}

bool ko_link_takes(const struct ko_link *link, const void *bytes, size_t len)
{
	const char *first = bytes;

	if (link->anywhere || len < KO_LENT_MIN)
		return link->anywhere;
	for (const struct ko_lent *l = link->lent; l; l = l->next)
		if (first >= l->memory && first < l->memory + l->len &&
		    len <= (size_t)(l->memory + l->len - first))
			return true;
	return false;
}

int ko_link_lend_nothing(struct ko_link *link, void *memory, size_t len)
{
	(void)link;
	(void)memory;
	(void)len;
	return 0;
}

int ko_link_lend_no_device(struct ko_link *link, void *memory, size_t len, int fd, uint64_t offset)
{
	(void)memory;
	(void)len;
	(void)fd;
	(void)offset;
	return ko_fail(KOLO_ENOTSUP, "%s: there is no card that could read or write a device's memory",
		       link->ops->name);
}

void ko_link_offer_nothing(struct ko_link *link, void *vector, size_t len)
{
	(void)link;
	(void)vector;
	(void)len;
}

void ko_link_take_nothing_back(struct ko_link *link, void *memory)
{
	(void)link;
	(void)memory;
}

int ko_link_stay(struct ko_link *link, enum ko_role near)
{
	(void)link;
	(void)near;
	return 0;
}

static int find_name(const char *name)
{
	char known[128] = "";

	for (size_t i = 0; ko_links[i]; i++) {
		size_t at = strlen(known);

		if (strcmp(ko_links[i]->name, name) == 0)
			return 0;
		snprintf(known + at, sizeof(known) - at, " %s", ko_links[i]->name);
	}
	return ko_fail(KOLO_ENOTSUP, "no transport called '%s'; this build has:%s", name, known);
}

int ko_link_net(const char **out)
{
	*out = getenv("KOLO_NET");
	if (!*out || !**out)
		*out = "";
	else if (find_name(*out) < 0)
		return ko_fail(KOLO_EINVAL, "KOLO_NET=%s: %s", *out, kolo_last_error());
	return 0;
}

int ko_link_choose(const char *name, const struct ko_place *a, const struct ko_place *b,
		   const struct ko_link_ops **out)
{
	int rc = 0, tried = 0;

	for (size_t i = 0; ko_links[i]; i++) {
		if (*name && strcmp(name, ko_links[i]->name) != 0)
			continue;
		tried = 1;
		rc = ko_links[i]->probe(a, b, *name != 0);
		*out = ko_links[i];
		if (rc == 0)
			return 0;
	}
	return tried ? rc : find_name(name);
}
