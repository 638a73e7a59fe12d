/* The engine's loops, of every instruction set that this processor has, against the plain ones: the
 * same bits. */
#include "tests/lib/scalars.h"
#include "tests/lib/t.h"
#include "zero/optim/kernels.h"

#include <math.h>
#include <string.h>

enum { MOST = 300 }; /* more than lamb_moments takes in one go */

static void fill(float *x, uint64_t *seed, float least)
{
	for (int i = 0; i < MOST; i++) {
		x[i] = (float)(int32_t)(t_random(seed) >> 32) / 2147483648.0f;
		if (least >= 0)
			x[i] = fabsf(x[i]) + least;
	}
}

struct state {
	float p[MOST], m[MOST], v[MOST], g[MOST];
	struct zero_lanes p2, u2;
};

static void updates_have_the_same_bits_for_every_length(void **state)
{
	const struct zero_kernels *const *list = zero_kernels_list();
	uint64_t seed = 1;

	(void)state;
	for (const struct zero_kernels *const *k = list; *k; k++) {
		for (size_t n = 0; n < MOST; n++) {
			struct kolo_zero_scalars s = t_scalars(n % 3 == 0, n % 3 % 2);
			struct state a, b;

			memset(&a, 0, sizeof(a));
			fill(a.p, &seed, -1);
			fill(a.m, &seed, -1);
			fill(a.v, &seed, 1e-3f);
			fill(a.g, &seed, -1);
			for (int o = 0; o < ZERO_NOPTIMIZERS; o++) {
				/* Adagrad's only moment is a sum of squares. */
				bool squares = o == KOLO_ZERO_ADAGRAD;

				b = a;
				list[0]->update[o](a.p, squares ? a.v : a.m, squares ? a.m : a.v,
						   a.g, n, &s);
				(*k)->update[o](b.p, squares ? b.v : b.m, squares ? b.m : b.v, b.g,
						n, &s);
				CHECK(memcmp(&a, &b, sizeof(a)) == 0);
			}
			b = a;
			list[0]->lamb_moments(a.p, a.m, a.v, a.g, n, &s, &a.p2, &a.u2);
			(*k)->lamb_moments(b.p, b.m, b.v, b.g, n, &s, &b.p2, &b.u2);
			list[0]->add_squares(&a.p2, a.g, n);
			(*k)->add_squares(&b.p2, b.g, n);
			CHECK(list[0]->checksum(a.g, 4, n, n * n) ==
			      (*k)->checksum(a.g, 4, n, n * n));
			CHECK(list[0]->checksum(a.g, 2, n, n * n) ==
			      (*k)->checksum(a.g, 2, n, n * n));
			list[0]->add(a.g, a.p, n);
			(*k)->add(b.g, b.p, n);
			CHECK(memcmp(&a, &b, sizeof(a)) == 0 && isfinite(zero_lanes_sum(&a.p2)));
		}
	}
}

/* ---- Squares in any order -------------------------------------------------------------------- */

enum { MANY = 20000 };

/* Values of this many powers of two. */
static void spread_values(float *x, int powers, uint64_t *seed)
{
	for (int i = 0; i < MANY; i++)
		x[i] = ldexpf((float)(int32_t)(t_random(seed) >> 32) / 2147483648.0f,
			      -(int)(t_random(seed) % (uint64_t)powers));
}

/* Parts of any length, on any kernel, added up in any order: first to last, last to first, or each
 * second one to another sum. */
static double sum_in_parts(const float *x, int way, uint64_t *seed)
{
	const struct zero_kernels *const *list = zero_kernels_list();
	struct zero_squares sums[2] = { zero_squares_none(), zero_squares_none() };
	size_t nkernels = 0, longest = 1 + (size_t)(t_random(seed) % 3000);

	while (list[nkernels])
		nkernels++;
	for (size_t at = 0, n; at < MANY; at += n) {
		const struct zero_kernels *k = list[t_random(seed) % nkernels];
		struct zero_squares part = zero_squares_none(), *to = &sums[way == 2 && at % 2];

		n = 1 + (size_t)(t_random(seed) % longest);
		n = n < MANY - at ? n : MANY - at;
		k->squares(&part, x + at, n);
		if (way == 1) {
			zero_squares_add(&part, to);
			*to = part;
		} else {
			zero_squares_add(to, &part);
		}
	}
	zero_squares_add(&sums[1], &sums[0]);
	return zero_squares_value(&sums[1]);
}

static void squares_have_the_same_sum_in_any_order_and_division(void **state)
{
	static const int powers[] = { 1, 10, 30, 100, 140 };
	static float x[MANY];
	uint64_t seed = 17;

	(void)state;
	for (size_t p = 0; p < ARRAY_LEN(powers); p++) {
		long double right = 0;
		double sum;

		spread_values(x, powers[p], &seed);
		for (int i = 0; i < MANY; i++)
			right += (long double)x[i] * (long double)x[i];
		sum = sum_in_parts(x, 0, &seed);
		CHECK(fabsl((long double)sum - right) <= right * 1e-14L);
		for (int round = 0; round < 60; round++) {
			CHECK(sum_in_parts(x, round % 3, &seed) == sum);
			for (int i = MANY - 1; i > 0; i--) { /* shuffled */
				int j = (int)(t_random(&seed) % (uint64_t)(i + 1));
				float kept = x[i];

				x[i] = x[j];
				x[j] = kept;
			}
		}
	}
}

/* Where levels begin: exact powers of two, and what is next to half a unit of the lowest level. */
static void squares_at_the_edges_of_levels_are_added_alike(void **state)
{
	static float x[MANY];
	uint64_t seed = 5;

	(void)state;
	for (int top = 126; top >= -148; top--) {
		double sum;

		for (int i = 0; i < MANY; i++) {
			int down = (int)(t_random(&seed) % 45);
			float one = ldexpf(1, top - down);

			x[i] = i % 3 ? one : nextafterf(one, i % 2 ? 0 : INFINITY);
		}
		sum = sum_in_parts(x, 0, &seed);
		for (int round = 0; round < 6; round++)
			CHECK(sum_in_parts(x, round % 3, &seed) == sum);
	}
}

static void squares_of_extremes_and_of_nothing(void **state)
{
	const struct zero_kernels *k = zero_kernels_best();
	struct zero_squares sum = zero_squares_none(), other = zero_squares_none();
	float x[] = { 0, -0.0f, 1e-45f, -3e38f, 3e38f, INFINITY, 1 };

	(void)state;
	CHECK(zero_squares_value(&sum) == 0);
	k->squares(&sum, x, 0);
	k->squares(&sum, x, 2);
	CHECK(sum.level == ZERO_NO_LEVEL && zero_squares_value(&sum) == 0);
	k->squares(&sum, x, 3);
	CHECK(zero_squares_value(&sum) == (double)x[2] * (double)x[2]);
	k->squares(&sum, x, 5);
	CHECK(zero_squares_value(&sum) == 2 * (double)x[3] * (double)x[3]);
	k->squares(&other, x, 6);
	CHECK(other.level == ZERO_NOT_FINITE && isnan(zero_squares_value(&other)));
	zero_squares_add(&other, &sum);
	zero_squares_add(&sum, &other);
	CHECK(sum.level == ZERO_NOT_FINITE && other.level == ZERO_NOT_FINITE);
	x[5] = NAN;
	sum = zero_squares_none();
	k->squares(&sum, x, 7);
	CHECK(sum.level == ZERO_NOT_FINITE);
	/* Of a device: numbers that are sums already. */
	sum = zero_squares_none();
	zero_squares_add_number(&sum, 0);
	CHECK(sum.level == ZERO_NO_LEVEL);
	zero_squares_add_number(&sum, 1e300);
	zero_squares_add_number(&sum, 2.5);
	CHECK(zero_squares_value(&sum) == 1e300);
	zero_squares_add_number(&sum, INFINITY);
	CHECK(sum.level == ZERO_NOT_FINITE);
	sum = zero_squares_none();
	for (int i = 1; i <= 1000; i++)
		zero_squares_add_number(&sum, i / 8.0);
	CHECK(zero_squares_value(&sum) == 500500 / 8.0);
}

static void what_is_not_finite_is_found_wherever_it_is(void **state)
{
	static const float bad[] = { INFINITY, -INFINITY, NAN };

	(void)state;
	for (const struct zero_kernels *const *k = zero_kernels_list(); *k; k++) {
		float x[MOST];
		uint16_t f16[MOST], bf16[MOST];

		for (size_t i = 0; i < MOST; i++)
			x[i] = i % 3 ? 3.4e38f : -1e-40f;
		for (size_t i = 0; i < MOST; i++) {
			f16[i] = i % 2 ? 0x7bff : 0x8001;
			bf16[i] = i % 2 ? 0x7f7f : 0xff00;
		}
		CHECK((*k)->finite_32(x, MOST) && (*k)->finite_16(f16, MOST, 0x7c00) &&
		      (*k)->finite_16(bf16, MOST, 0x7f80));
		for (size_t i = 0; i < MOST; i++) {
			float kept = x[i];

			x[i] = bad[i % 3];
			CHECK(!(*k)->finite_32(x, MOST) && (*k)->finite_32(x, i));
			x[i] = kept;
			f16[i] = i % 2 ? 0xfc00 : 0x7e01;
			CHECK(!(*k)->finite_16(f16, MOST, 0x7c00) &&
			      (*k)->finite_16(f16, i, 0x7c00));
			f16[i] = 0;
			bf16[i] = i % 2 ? 0xff80 : 0x7fc0;
			CHECK(!(*k)->finite_16(bf16, MOST, 0x7f80) &&
			      (*k)->finite_16(bf16, i, 0x7f80));
			bf16[i] = 0;
		}
	}
}

/* Beyond 2^32 elements too. */
static void checksums_of_parts_add_up_and_show_every_change(void **state)
{
	static const uint64_t firsts[] = { 0, 77, ((uint64_t)1 << 32) - 10, (uint64_t)1 << 40 };
	const struct zero_kernels *k = zero_kernels_best();
	uint32_t x[MOST];
	uint32_t seed = 1;

	(void)state;
	for (size_t i = 0; i < MOST; i++)
		x[i] = i % 5 ? seed = seed * 1664525 + 1013904223 : 0;
	for (size_t f = 0; f < ARRAY_LEN(firsts); f++) {
		for (size_t size = 2; size <= 4; size += 2) {
			uint64_t whole = k->checksum(x, size, MOST, firsts[f]);

			for (size_t cut = 0; cut <= MOST; cut++)
				CHECK(whole == k->checksum(x, size, cut, firsts[f]) +
						       k->checksum((char *)x + cut * size, size,
								   MOST - cut, firsts[f] + cut));
			for (size_t i = 0; i < MOST; i++)
				for (int bit = 0; bit < 16; bit++) {
					x[i * size / 4] ^= 1u << bit;
					CHECK(k->checksum(x, size, MOST, firsts[f]) != whole);
					x[i * size / 4] ^= 1u << bit;
				}
			for (size_t i = 1; size == 4 && i < MOST; i++) {
				uint32_t before = x[i], other = x[i - 1];

				x[i] = other;
				x[i - 1] = before;
				CHECK(before == other ||
				      k->checksum(x, size, MOST, firsts[f]) != whole);
				x[i] = before;
				x[i - 1] = other;
			}
		}
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(squares_have_the_same_sum_in_any_order_and_division),
	cmocka_unit_test(squares_at_the_edges_of_levels_are_added_alike),
	cmocka_unit_test(squares_of_extremes_and_of_nothing),
	cmocka_unit_test(checksums_of_parts_add_up_and_show_every_change),
	cmocka_unit_test(updates_have_the_same_bits_for_every_length),
	cmocka_unit_test(what_is_not_finite_is_found_wherever_it_is),
};

T_MAIN(tests)
