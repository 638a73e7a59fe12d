/* What all links have in common, whatever their transport. See link.h; link_table.c has the transports. */
#include "link.h"

#include "error.h"

int ko_link_open(const struct ko_link_ops *ops, enum ko_role role, const struct ko_place *here,
		 const struct ko_limits *limits, struct ko_link **out)
{
	int rc = ops->open(role, here, limits, out);

	if (rc == 0)
		(*out)->ops = ops;
	return rc;
}

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
