/* What all links have in common: opening (ko_link_open), and memory that is lent to them
 * (ko_link_lend). */
#include "comm/transport/link.h"

int ko_link_open(const struct ko_link_ops *ops, enum ko_role role, const struct ko_place *here,
		 const struct ko_limits *limits, struct ko_link **out)
{
	int rc = ops->open(role, here, limits, out);

	if (rc == 0) {
		(*out)->ops = ops;
		(*out)->anywhere = ops->anywhere;
	}
	return rc;
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

int ko_link_lend(struct ko_link *link, void *memory, size_t len)
{
	return link->ops->rma ? link->ops->rma->lend(link, memory, len) : 0;
}

void ko_link_take_back(struct ko_link *link, void *memory)
{
	if (link->ops->rma)
		link->ops->rma->take_back(link, memory);
}
