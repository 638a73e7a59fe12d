/* The orders' names (ko_sums_name, ko_sums_find), and the arithmetic of the tree (ko_tree_joins).
 */
#include "comm/plan/sums.h"

#include "comm/base/error.h"

#include <string.h>

static const char *const names[KO_NSUMS] = {
	[KO_SUMS_RING] = "ring", [KO_SUMS_TREE] = "tree", [KO_SUMS_GRID] = "grid"
};

const char *ko_sums_name(enum ko_sums sums)
{
	return names[sums];
}

int ko_sums_find(const char *name, enum ko_sums *out)
{
	for (int k = 0; k < KO_NSUMS; k++)
		if (strcmp(names[k], name) == 0) {
			*out = (enum ko_sums)k;
			return 0;
		}
	return ko_fail(KOLO_ENOTSUP,
		       "no order of additions called '%.11s'; this build has: %s, %s, %s", name,
		       names[KO_SUMS_RING], names[KO_SUMS_TREE], names[KO_SUMS_GRID]);
}

/* After an even number the last two values are a pair, after a multiple of four two pairs are one,
 * and so on. After the last one everything is added. */
int ko_tree_joins(int count, int nranks)
{
	return count < nranks ? __builtin_ctz((unsigned)count)
			      : __builtin_popcount((unsigned)count - 1);
}

int ko_tree_height(int nranks)
{
	return 32 - __builtin_clz((unsigned)nranks);
}
