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
	cmocka_unit_test(checksums_of_parts_add_up_and_show_every_change),
	cmocka_unit_test(updates_have_the_same_bits_for_every_length),
	cmocka_unit_test(what_is_not_finite_is_found_wherever_it_is),
};

T_MAIN(tests)
