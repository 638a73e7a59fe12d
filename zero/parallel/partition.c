/* Divides layers over stages (kolo_partition). */
#include "zero/base/basics.h"

#include "kolo/kolo_parallel.h"

#include <stdlib.h>

enum { MOST = 1 << 16 }; /* layers, and stages */

/* The costs of layers before each: sums[i] is that of the first i. */
static double *sum_up(const double *costs, int n)
{
	double *sums = calloc((size_t)n + 1, sizeof(*sums));

	for (int i = 0; sums && i < n; i++)
		sums[i + 1] = sums[i] + costs[i];
	return sums;
}

static void divide_evenly(int n, int parts, int *bounds)
{
	bounds[0] = 0;
	for (int p = 0; p < parts; p++)
		bounds[p + 1] = bounds[p] + n / parts + (p < n % parts);
}

/* ---- Balanced -------------------------------------------------------------------------------- */

/* A division of the first layers into some stages. */
struct cut {
	double largest, smallest; /* of its stages */
	double spread;            /* largest - smallest; infinite: there is none */
	int before;               /* layers of all its stages except the last one */
};

/* best[j * (n + 1) + i]: i layers in j stages. The spread of a division does not follow from those
 * of its beginnings, so this is not always the least one; DeepSpeed finds the same. */
static void find_balanced(const double *sums, int n, int parts, struct cut *best)
{
	size_t row = (size_t)n + 1;

	for (size_t i = 0; i < ((size_t)parts + 1) * row; i++)
		best[i].spread = __builtin_inf();
	best[0] = (struct cut){ .smallest = __builtin_inf() };
	for (int j = 1; j <= parts; j++)
		for (int i = j; i <= n; i++)
			for (int k = j - 1; k < i; k++) {
				const struct cut *from = &best[(size_t)(j - 1) * row + (size_t)k];
				struct cut *to = &best[(size_t)j * row + (size_t)i], new;
				double last = sums[i] - sums[k];

				if (from->spread == __builtin_inf())
					continue;
				new.largest = from->largest > last ? from->largest : last;
				new.smallest = from->smallest < last ? from->smallest : last;
				new.spread = new.largest - new.smallest;
				new.before = k;
				if (new.spread <= to->spread)
					*to = new;
			}
}

static int balance(const double *sums, int n, int parts, int *bounds)
{
	struct cut *best;

	if (n <= parts) {
		divide_evenly(n, parts, bounds);
		return 0;
	}
	best = calloc(((size_t)parts + 1) * ((size_t)n + 1), sizeof(*best));
	if (!best)
		return kolo_error_set(KOLO_ENOMEM, "%d layers in %d stages: out of memory", n,
				      parts);
	find_balanced(sums, n, parts, best);
	bounds[parts] = n;
	for (int j = parts; j > 0; j--)
		bounds[j - 1] = best[(size_t)j * ((size_t)n + 1) + (size_t)bounds[j]].before;
	free(best);
	return 0;
}

/* ---- Largest --------------------------------------------------------------------------------- */

/* least[j * (n + 1) + i]: the largest stage of i layers in j stages, as small as it may be. */
static void find_least(const double *sums, int n, int parts, double *least)
{
	size_t row = (size_t)n + 1;

	for (int i = 0; i <= n; i++)
		least[i] = i ? __builtin_inf() : 0;
	for (int j = 1; j <= parts; j++)
		for (int i = 0; i <= n; i++) {
			double *to = &least[(size_t)j * row + (size_t)i];

			*to = __builtin_inf();
			for (int k = 0; k <= i; k++) {
				double before = least[(size_t)(j - 1) * row + (size_t)k],
				       last = sums[i] - sums[k];
				double larger = before > last ? before : last;

				*to = larger < *to ? larger : *to;
			}
		}
}

/* Fills the stages up to the least limit, the last one first: the first stages keep more
 * micro-batches. Each stage gets a layer while there are enough. */
static int limit(const double *sums, int n, int parts, int *bounds)
{
	double *least = calloc(((size_t)parts + 1) * ((size_t)n + 1), sizeof(*least)), most;

	if (!least)
		return kolo_error_set(KOLO_ENOMEM, "%d layers in %d stages: out of memory", n,
				      parts);
	find_least(sums, n, parts, least);
	most = least[(size_t)parts * ((size_t)n + 1) + (size_t)n];
	free(least);
	bounds[parts] = n;
	for (int p = parts; p-- > 0;) {
		int i = bounds[p + 1];

		while (i > p && sums[bounds[p + 1]] - sums[i - 1] <= most)
			i--;
		bounds[p] = i;
	}
	return 0;
}

/* ---- Public ---------------------------------------------------------------------------------- */

static int check(enum kolo_partition_method method, const double *costs, int n, int parts,
		 const int *bounds)
{
	double sum = 0;

	if ((unsigned)method > KOLO_PARTITION_LARGEST || !bounds)
		return kolo_error_set(KOLO_EINVAL, "a partition by method %d, or into NULL",
				      (int)method);
	if (n < 0 || parts < 1 || n > MOST || parts > MOST)
		return kolo_error_set(
			KOLO_EINVAL,
			"a partition of %d layers into %d stages: want 0 to %d layers, and 1 to %d stages",
			n, parts, MOST, MOST);
	for (int i = 0; method != KOLO_PARTITION_UNIFORM && i < n; i++)
		if (!costs || !(costs[i] >= 0 && costs[i] < __builtin_inf()))
			return kolo_error_set(
				KOLO_EINVAL,
				"the cost of layer %d is %g, and must be finite and at least 0", i,
				costs ? costs[i] : 0);
		else if (!((sum += costs[i]) < __builtin_inf()))
			return kolo_error_set(KOLO_EINVAL,
					      "the costs of layers 0 to %d add up to infinity", i);
	return 0;
}

int kolo_partition(enum kolo_partition_method method, const double *costs, int n, int parts,
		   int *bounds)
{
	double *sums;
	int rc = check(method, costs, n, parts, bounds);

	if (rc < 0)
		return rc;
	if (method == KOLO_PARTITION_UNIFORM) {
		divide_evenly(n, parts, bounds);
		return 0;
	}
	if (!(sums = sum_up(costs, n)))
		return kolo_error_set(KOLO_ENOMEM, "costs of %d layers: out of memory", n);
	rc = method == KOLO_PARTITION_BALANCED ? balance(sums, n, parts, bounds)
					       : limit(sums, n, parts, bounds);
	free(sums);
	return rc;
}
