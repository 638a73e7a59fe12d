/* Makes shapes (ko_shape_make) and reads them (ko_shape_read). */
#include "comm/plan/shape.h"

#include "comm/base/error.h"

#include <stdio.h>
#include <stdlib.h>

struct member {
	int group, rank;
};

static int by_group(const void *a, const void *b)
{
	const struct member *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	return x->rank - y->rank;
}

static int ranks_of(const struct member *all, int nranks, int first)
{
	int n = 1;

	while (first + n < nranks && all[first + n].group == all[first].group)
		n++;
	return n;
}

/* Do all groups have as many ranks as the first one? */
static int check_groups(const struct member *all, int nranks)
{
	int size = ranks_of(all, nranks, 0), n;

	for (int k = size; k < nranks; k += n) {
		n = ranks_of(all, nranks, k);
		if (n != size)
			return ko_fail(KOLO_ENOTSUP,
				       "the order 'grid' needs groups (hosts) of equally many "
				       "ranks: that of rank %d has %d, that of rank %d has %d",
				       all[0].rank, size, all[k].rank, n);
	}
	return 0;
}

int ko_shape_make(const int *group, int nranks, struct ko_shape *out)
{
	struct member *all = malloc((size_t)nranks * sizeof(*all));
	int rc = 0;

	*out = (struct ko_shape){ .ranks = malloc(2 * (size_t)nranks * sizeof(*out->ranks)) };
	if (!all || !out->ranks)
		rc = ko_fail(KOLO_ENOMEM, "no memory for a shape of %d ranks", nranks);
	for (int r = 0; rc == 0 && r < nranks; r++)
		all[r] = (struct member){ group[r], r };
	if (rc == 0) {
		qsort(all, (size_t)nranks, sizeof(*all), by_group);
		rc = check_groups(all, nranks);
	}
	if (rc == 0) {
		out->size = ranks_of(all, nranks, 0);
		out->ngroups = nranks / out->size;
		out->places = out->ranks + nranks;
		for (int k = 0; k < nranks; k++) {
			out->ranks[k] = all[k].rank;
			out->places[all[k].rank] = k;
		}
	} else {
		ko_shape_free(out);
	}
	free(all);
	return rc;
}

void ko_shape_free(struct ko_shape *shape)
{
	free(shape->ranks);
	*shape = (struct ko_shape){ 0 };
}

int ko_shape_read(const char *text, int rank, int nranks, int *group)
{
	int ngroups = 0, size = 0, end = 0;

	if (sscanf(text, "%dx%d%n", &ngroups, &size, &end) != 2 || text[end] || ngroups < 1 ||
	    size < 1 || nranks % size || nranks / size != ngroups)
		return ko_fail(
			KOLO_EINVAL,
			"'%s' is no shape of %d ranks: want GROUPSxRANKS, groups times ranks of each",
			text, nranks);
	*group = rank / size;
	return 0;
}
