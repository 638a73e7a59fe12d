/* The table of algorithms (ko_algorithm_table), and finding a row by its name. */
#include "comm/coll/algorithms.h"

#include "comm/base/error.h"
#include "comm/coll/board.h"
#include "comm/coll/direct.h"
#include "comm/coll/doubling.h"
#include "comm/coll/exchange.h"
#include "comm/coll/grid.h"
#include "comm/coll/pairwise.h"
#include "comm/coll/ring.h"
#include "comm/leaders/partials.h"

#include <stdio.h>
#include <string.h>

const struct ko_algorithm_ops *const ko_algorithm_table[KO_NALGORITHMS] = {
	[KO_RING] = &ko_ring_ops,         [KO_BOARD] = &ko_board_ops,
	[KO_SLICES] = &ko_slices_ops,     [KO_EXCHANGE] = &ko_exchange_ops,
	[KO_DOUBLING] = &ko_doubling_ops, [KO_PARTIALS] = &ko_partials_ops,
	[KO_CENTER] = &ko_center_ops,     [KO_SHARES] = &ko_shares_ops,
	[KO_DIRECT] = &ko_direct_ops,     [KO_PAIRWISE] = &ko_pairwise_ops,
	[KO_GRID] = &ko_grid_ops,
};

int ko_algorithm_find(const char *name, const struct ko_algorithm_ops **out)
{
	char known[128] = "";

	*out = NULL;
	if (!*name)
		return 0;
	for (int k = 0; k < KO_NALGORITHMS; k++) {
		size_t at = strlen(known);

		if (strcmp(ko_algorithm_table[k]->name, name) == 0) {
			*out = ko_algorithm_table[k];
			return 0;
		}
		snprintf(known + at, sizeof(known) - at, "%s %s", at ? "," : "",
			 ko_algorithm_table[k]->name);
	}
	return ko_fail(KOLO_ENOTSUP, "no algorithm called '%.11s'; this build has:%s", name, known);
}
