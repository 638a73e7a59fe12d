/* Divisions of layers over stages: DeepSpeed's, and beside all divisions that there are. */
#include "kolo/kolo_parallel.h"
#include "tests/lib/t.h"

#include <math.h>
#include <string.h>

enum { MOST = 10 };

static void divides(enum kolo_partition_method method, const double *costs, int n, int parts,
		    const int *want)
{
	int bounds[MOST + 1];

	CHECK(kolo_partition(method, costs, n, parts, bounds) == 0);
	for (int p = 0; p <= parts; p++)
		CHECK(bounds[p] == want[p]);
}

static void uniform_and_balanced_are_deepspeeds(void **state)
{
	static const double ends[] = { 5, 10, 10, 10, 10, 10, 10, 10, 10, 0, 5 };
	static const double heavy[] = { 40, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 0, 40 };
	static const double equal[] = { 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0 };

	(void)state;
	divides(KOLO_PARTITION_UNIFORM, NULL, 10, 4, (const int[]){ 0, 3, 6, 8, 10 });
	divides(KOLO_PARTITION_UNIFORM, NULL, 30, 4, (const int[]){ 0, 8, 16, 23, 30 });
	divides(KOLO_PARTITION_UNIFORM, NULL, 2, 4, (const int[]){ 0, 1, 2, 2, 2 });
	divides(KOLO_PARTITION_BALANCED, ends, 11, 4, (const int[]){ 0, 3, 5, 7, 11 });
	divides(KOLO_PARTITION_BALANCED, heavy, 15, 4, (const int[]){ 0, 2, 7, 12, 15 });
	divides(KOLO_PARTITION_BALANCED, equal, 11, 4, (const int[]){ 0, 4, 6, 8, 11 });
	divides(KOLO_PARTITION_BALANCED, equal, 3, 3, (const int[]){ 0, 1, 2, 3 });
}

/* The largest stage, and the difference to the smallest one. */
struct stages {
	double largest, spread;
};

static struct stages look(const double *costs, const int *bounds, int parts)
{
	struct stages s = { 0 };
	double smallest = INFINITY;

	for (int p = 0; p < parts; p++) {
		double sum = 0;

		for (int i = bounds[p]; i < bounds[p + 1]; i++)
			sum += costs[i];
		s.largest = fmax(s.largest, sum);
		smallest = fmin(smallest, sum);
	}
	s.spread = s.largest - smallest;
	return s;
}

/* Tries all divisions with bounds[p], .. from `from` on. */
static void try_all(const double *costs, int n, int parts, int p, int *bounds, struct stages *best)
{
	if (p == parts) {
		struct stages s;

		bounds[parts] = n;
		s = look(costs, bounds, parts);
		best->largest = fmin(best->largest, s.largest);
		return;
	}
	for (bounds[p] = bounds[p - 1]; bounds[p] <= n; bounds[p]++)
		try_all(costs, n, parts, p + 1, bounds, best);
}

static void the_largest_stage_is_as_small_as_it_can_be(void **state)
{
	uint64_t seed = t_seed();

	(void)state;
	for (int k = 0; k < 2000; k++) {
		int n = (int)(t_random(&seed) % 10), parts = 1 + (int)(t_random(&seed) % 4);
		int bounds[MOST + 1] = { 0 }, tried[MOST + 1] = { 0 };
		struct stages best = { INFINITY, INFINITY };
		double costs[MOST];

		for (int i = 0; i < n; i++)
			costs[i] = (double)(t_random(&seed) % 7);
		CHECK(kolo_partition(KOLO_PARTITION_LARGEST, costs, n, parts, bounds) == 0);
		CHECK(bounds[0] == 0 && bounds[parts] == n);
		for (int p = 0; p < parts; p++)
			CHECK(bounds[p + 1] >= bounds[p] &&
			      (n < parts || bounds[p + 1] > bounds[p]));
		try_all(costs, n, parts, 1, tried, &best);
		CHECK(look(costs, bounds, parts).largest == best.largest);
	}
	divides(KOLO_PARTITION_LARGEST, (const double[]){ 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, 10, 4,
		(const int[]){ 0, 1, 4, 7, 10 });
	divides(KOLO_PARTITION_LARGEST, (const double[]){ 1, 1 }, 2, 4,
		(const int[]){ 0, 1, 2, 2, 2 });
}

static void mistakes_are_told(void **state)
{
	const double bad[] = { 1, -1 }, nan_one[] = { NAN }, huge[] = { 1e308, 1e308 };
	int bounds[MOST + 1];

	(void)state;
	CHECK(kolo_partition(KOLO_PARTITION_UNIFORM, NULL, 3, 0, bounds) == KOLO_EINVAL);
	CHECK(kolo_partition(KOLO_PARTITION_UNIFORM, NULL, -1, 2, bounds) == KOLO_EINVAL);
	CHECK(kolo_partition(KOLO_PARTITION_UNIFORM, NULL, 3, 2, NULL) == KOLO_EINVAL);
	CHECK(kolo_partition((enum kolo_partition_method)9, bad, 2, 2, bounds) == KOLO_EINVAL);
	CHECK(kolo_partition(KOLO_PARTITION_LARGEST, NULL, 3, 2, bounds) == KOLO_EINVAL);
	CHECK(kolo_partition(KOLO_PARTITION_LARGEST, nan_one, 1, 2, bounds) == KOLO_EINVAL);
	CHECK(kolo_partition(KOLO_PARTITION_LARGEST, huge, 2, 2, bounds) == KOLO_EINVAL &&
	      strstr(kolo_last_error(), "add up to infinity"));
	CHECK(kolo_partition(KOLO_PARTITION_UNIFORM, NULL, 1 << 20, 2, bounds) == KOLO_EINVAL &&
	      strstr(kolo_last_error(), "want 0 to 65536 layers"));
	CHECK(kolo_partition(KOLO_PARTITION_BALANCED, bad, 2, 2, bounds) == KOLO_EINVAL &&
	      strstr(kolo_last_error(), "layer 1 is -1"));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(uniform_and_balanced_are_deepspeeds),
	cmocka_unit_test(the_largest_stage_is_as_small_as_it_can_be),
	cmocka_unit_test(mistakes_are_told),
};

T_MAIN(tests)
