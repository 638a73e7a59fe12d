/* The loops over elements, of every instruction set that this processor has, against one element at
 * a time. */
#include "comm/reduce/reduce.h"
#include "tests/lib/t.h"
#include "tools/common/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 300, GUARD = 0xa5 };

/* Room for MOST elements of any type, one byte off alignment, with a guard byte on both sides. */
struct buffer {
	unsigned char bytes[MOST * VALUES_SIZE + 10];
};

static unsigned char *elements(struct buffer *b)
{
	return b->bytes + 1;
}

static void fill_random(struct buffer *b, uint64_t *seed, enum kolo_type type, bool tame)
{
	size_t size = kolo_type_size(type);

	for (size_t i = 0; i < sizeof(b->bytes); i++)
		b->bytes[i] = (unsigned char)(t_random(seed) >> 32);
	for (size_t i = 0; tame && !values_is_integer(type) && i < MOST; i++)
		values_make(type, t_random(seed),
			    ldexp((double)(t_random(seed) % 4000) - 2000,
				  (int)(t_random(seed) % 9) - 12),
			    elements(b) + i * size);
}

/* The combination as values.h names it. */
struct named {
	enum ko_combine how;
	enum kolo_op op;
	bool premul;
};

static const struct named named[KO_NCOMBINES] = {
	{ KO_SUM, KOLO_SUM, false },       { KO_PROD, KOLO_PROD, false },
	{ KO_MIN, KOLO_MIN, false },       { KO_MAX, KOLO_MAX, false },
	{ KO_SUM_SCALED, KOLO_SUM, true }, { KO_BAND, KOLO_BAND, false },
	{ KO_BOR, KOLO_BOR, false },       { KO_BXOR, KOLO_BXOR, false },
	{ KO_LAND, KOLO_LAND, false },     { KO_LOR, KOLO_LOR, false },
	{ KO_LXOR, KOLO_LXOR, false },     { KO_MINLOC, KOLO_MINLOC, false },
	{ KO_MAXLOC, KOLO_MAXLOC, false },
};

static bool combines(const struct ko_kernels *k, enum kolo_type type, int how)
{
	bool has = values_has_op(type, named[how].op);

	CHECK((k->combine[type][how] != NULL) == has);
	CHECK(ko_type_combines(type, (enum ko_combine)how) == has);
	return has;
}

static union ko_scalar scalar_of(enum kolo_type type, struct values_scale s)
{
	union ko_scalar out = { .u64 = s.u };

	if (type == KOLO_F64 || type == KOLO_C128)
		out.f64 = s.f;
	else if (!values_is_integer(type))
		out.f32 = (float)s.f;
	return out;
}

static void try_combine(const struct ko_kernels *k, enum kolo_type type, struct named how, size_t n,
			uint64_t *seed, bool in_place, bool tame)
{
	struct values_scale s = { .f = -1.7f, .u = 0xfedcba9876543211 };
	union ko_scalar scalar = scalar_of(type, s);
	struct buffer in, own, out, want;
	size_t size = kolo_type_size(type);

	fill_random(&in, seed, type, tame);
	fill_random(&own, seed, type, tame);
	/* What is not true is rare otherwise. */
	for (size_t i = 0; ko_is_logical(how.how) && i < MOST; i++) {
		if (t_random(seed) >> 40 & 1)
			memset(elements(&in) + i * size, 0, size);
		if (t_random(seed) >> 40 & 1)
			memset(elements(&own) + i * size, 0, size);
	}
	memset(&out, GUARD, sizeof(out));
	want = in;
	for (size_t i = 0; i < n; i++)
		values_combine(type, how.op, how.premul, s, elements(&want) + i * size,
			       elements(&own) + i * size);
	if (in_place)
		out = own;
	k->combine[type][how.how](elements(&out), elements(&in),
				  in_place ? elements(&out) : elements(&own), n, &scalar);
	for (size_t i = 0; i < n; i++)
		CHECK(values_same(type, elements(&out) + i * size, elements(&want) + i * size));
	CHECK(in_place ? out.bytes[0] == own.bytes[0] &&
				 out.bytes[1 + n * size] == own.bytes[1 + n * size]
		       : out.bytes[0] == GUARD && out.bytes[1 + n * size] == GUARD);
}

static void every_loop_equals_its_definition(void **state)
{
	static const size_t counts[] = { 0,  1,  2,  7,  15, 16, 17,  31,
					 32, 33, 63, 64, 65, 97, 255, 300 };
	uint64_t seed = 7;

	(void)state;
	for (const struct ko_kernels *const *k = ko_kernels_list(); *k; k++)
		for (int type = 0; type < KO_NTYPES; type++)
			for (int how = 0; how < KO_NCOMBINES; how++)
				for (size_t c = 0; combines(*k, (enum kolo_type)type, how) &&
						   c < ARRAY_LEN(counts);
				     c++)
					for (int way = 0; way < 4; way++)
						try_combine(*k, (enum kolo_type)type, named[how],
							    counts[c], &seed, way & 1, way & 2);
}

static void narrow_types_combine_right_in_every_pair(void **state)
{
	static const enum kolo_type types[] = { KOLO_F8E4M3, KOLO_F8E5M2 };
	unsigned char in[256], own[256], out[256], want;

	(void)state;
	for (const struct ko_kernels *const *k = ko_kernels_list(); *k; k++) {
		for (size_t t = 0; t < ARRAY_LEN(types); t++) {
			for (int how = 0; how < KO_SUM_SCALED; how++) {
				for (int a = 0; a < 256; a++) {
					union ko_scalar none = { .u64 = 0 };

					for (int b = 0; b < 256; b++) {
						in[b] = (unsigned char)a;
						own[b] = (unsigned char)b;
					}
					(*k)->combine[types[t]][how](out, in, own, 256, &none);
					for (int b = 0; b < 256; b++) {
						want = (unsigned char)a;
						values_combine(types[t], named[how].op, false,
							       (struct values_scale){ 1, 1 }, &want,
							       &own[b]);
						CHECK(values_same(types[t], &out[b], &want));
					}
				}
			}
		}
	}
}

static void try_fill(const struct ko_kernels *k, enum kolo_type type, size_t n, uint64_t *seed)
{
	struct values_scale s = { .f = 0.3f, .u = 0x1234567890abcdef };
	union ko_scalar scale = scalar_of(type, s), divisor = { .u64 = 300 };
	struct buffer src, out;
	size_t size = kolo_type_size(type);
	unsigned char want[VALUES_SIZE];

	fill_random(&src, seed, type, n & 1);
	CHECK((k->scale[type] != NULL) == values_has_op(type, KOLO_SUM));
	if (k->scale[type])
		k->scale[type](elements(&out), elements(&src), n, &scale);
	for (size_t i = 0; k->scale[type] && i < n; i++) {
		values_first(type, KOLO_SUM, true, s, elements(&src) + i * size, want);
		CHECK(values_same(type, elements(&out) + i * size, want));
	}
	out = src;
	k->divide[type](elements(&out), elements(&out), n, &divisor);
	for (size_t i = 0; i < n; i++) {
		memcpy(want, elements(&src) + i * size, size);
		values_finish(type, KOLO_AVG, 300, want);
		CHECK(memcmp(elements(&out) + i * size, want, size) == 0);
	}
	memset(&out, GUARD, sizeof(out));
	k->copy[type](elements(&out), elements(&src), n, NULL);
	CHECK(memcmp(elements(&out), elements(&src), n * size) == 0 &&
	      elements(&out)[n * size] == GUARD);
	if (!values_is_integer(type))
		return;
	for (size_t i = 0; i < n; i += 2)
		memset(elements(&src) + i * size, 0, size);
	k->truth[type](elements(&out), elements(&src), n, NULL);
	for (size_t i = 0; i < n; i++) {
		values_first(type, KOLO_LXOR, false, s, elements(&src) + i * size, want);
		CHECK(memcmp(elements(&out) + i * size, want, size) == 0);
	}
}

static void scaling_dividing_and_copying_equal_their_definitions(void **state)
{
	uint64_t seed = 3;

	(void)state;
	for (const struct ko_kernels *const *k = ko_kernels_list(); *k; k++)
		for (int type = 0; type < KO_NTYPES; type++)
			for (size_t n = 0; n < 70; n++)
				try_fill(*k, (enum kolo_type)type, n, &seed);
}

/* dst = src * scale, one element after the other: the product in float, rounded once. */
static void cast_by_definition(enum kolo_type from, const unsigned char *src, enum kolo_type to,
			       unsigned char *dst, size_t n, float scale)
{
	for (size_t i = 0; i < n; i++) {
		float x = (float)values_decode(from, src + i * kolo_type_size(from)) * scale;

		values_encode(to, (double)x, dst + i * kolo_type_size(to));
	}
}

static void try_cast(enum kolo_type from, enum kolo_type to, size_t n, uint64_t *seed)
{
	size_t size = kolo_type_size(to);
	struct buffer src, out, want;

	fill_random(&src, seed, from, n & 1);
	memset(&out, GUARD, sizeof(out));
	cast_by_definition(from, elements(&src), to, elements(&want), n, 0.3f);
	CHECK(kolo_cast(elements(&src), from, elements(&out), to, n, 0.3f) == 0);
	for (size_t i = 0; i < n; i++)
		CHECK(values_same(to, elements(&out) + i * size, elements(&want) + i * size));
	CHECK(elements(&out)[n * size] == GUARD);
	for (const struct ko_kernels *const *k = ko_kernels_list(); *k; k++) {
		if (from != KOLO_F32 && to != KOLO_F32)
			continue;
		memset(&out, GUARD, sizeof(out));
		(to == KOLO_F32 ? (*k)->to_float[from] : (*k)->of_float[to])(
			elements(&out), elements(&src), n, &(union ko_scalar){ .f32 = 0.3f });
		for (size_t i = 0; i < n; i++)
			CHECK(values_same(to, elements(&out) + i * size,
					  elements(&want) + i * size));
		CHECK(elements(&out)[n * size] == GUARD);
	}
}

static void casts_equal_their_definition(void **state)
{
	static const enum kolo_type types[] = { KOLO_F16, KOLO_BF16, KOLO_F32, KOLO_F8E4M3,
						KOLO_F8E5M2 };
	uint64_t seed = 4;
	float x[3];

	(void)state;
	for (size_t a = 0; a < ARRAY_LEN(types); a++)
		for (size_t b = 0; b < ARRAY_LEN(types); b++)
			for (size_t n = 0; n < 70; n++)
				try_cast(types[a], types[b], n, &seed);
	CHECK(kolo_cast(x, KOLO_F32, x, KOLO_F64, 1, 1) == KOLO_EINVAL &&
	      strstr(kolo_last_error(), "f64"));
	CHECK(kolo_cast(NULL, KOLO_F32, x, KOLO_F32, 3, 1) == KOLO_EINVAL);
}

/* Every 16-bit code times factors that make products of all kinds, halfway ones and subnormals
 * among them. */
static void conversions_inside_the_loops_are_exact_for_every_code(void **state)
{
	static const float factors[] = { 1.0f,     0.5f,       1.0f / 3, 1.0009765625f,
					 0x1p-11f, 0x1.8p-20f, 1.5f,     65536.0f };
	static const enum kolo_type types[] = { KOLO_F16, KOLO_BF16 };
	static uint16_t codes[1 << 16], out[1 << 16];
	uint16_t want;

	(void)state;
	for (unsigned c = 0; c < ARRAY_LEN(codes); c++)
		codes[c] = (uint16_t)c;
	for (const struct ko_kernels *const *k = ko_kernels_list(); *k; k++) {
		for (size_t t = 0; t < ARRAY_LEN(types); t++) {
			for (size_t f = 0; f < ARRAY_LEN(factors); f++) {
				union ko_scalar s = { .f32 = factors[f] };

				(*k)->scale[types[t]](out, codes, ARRAY_LEN(codes), &s);
				for (unsigned c = 0; c < ARRAY_LEN(codes); c++) {
					values_first(types[t], KOLO_SUM, true,
						     (struct values_scale){ (double)s.f32, 1 },
						     &codes[c], &want);
					CHECK(values_same(types[t], &out[c], &want));
				}
			}
		}
	}
}

static void nan_wins_and_minus_zero_is_less(void **state)
{
	float in[4] = { NAN, 1, -0.0f, 0.0f }, own[4] = { 1, NAN, 0.0f, -0.0f }, out[4];

	(void)state;
	for (const struct ko_kernels *const *k = ko_kernels_list(); *k; k++) {
		(*k)->combine[KOLO_F32][KO_MIN](out, in, own, 4, NULL);
		CHECK(isnan(out[0]) && isnan(out[1]) && signbit(out[2]) && signbit(out[3]));
		(*k)->combine[KOLO_F32][KO_MAX](out, in, own, 4, NULL);
		CHECK(isnan(out[0]) && isnan(out[1]) && !signbit(out[2]) && !signbit(out[3]));
	}
}

static void equal_values_leave_the_lower_index(void **state)
{
	struct {
		double value;
		int32_t index, unused;
	} in[] = { { 1, 5, 0 }, { 0.0, 3, 0 }, { NAN, 9, 0 }, { NAN, 2, 0 }, { 7, 1, 0 } },
	  own[] = { { 1, 4, 0 }, { -0.0, 2, 0 }, { 1, 1, 0 }, { NAN, 7, 0 }, { 8, 0, 0 } }, out[5];

	(void)state;
	for (const struct ko_kernels *const *k = ko_kernels_list(); *k; k++) {
		(*k)->combine[KOLO_F64_I32][KO_MINLOC](out, in, own, 5, NULL);
		CHECK(out[0].index == 4 && out[1].index == 2 && out[2].index == 9 &&
		      out[3].index == 2 && out[4].index == 1);
		(*k)->combine[KOLO_F64_I32][KO_MAXLOC](out, in, own, 5, NULL);
		CHECK(out[0].index == 4 && out[1].index == 2 && out[2].index == 9 &&
		      out[3].index == 2 && out[4].index == 0);
	}
}

/* Every alignment and length around those of a vector; nothing beside. */
static void check_copies(ko_stream_fn *copy)
{
	static unsigned char src[600], out[600];

	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (unsigned char)(i * 7 + 1);
	for (size_t at = 0; at < 70; at++) {
		for (size_t len = 0; len < 300; len += len < 140 ? 1 : 13) {
			memset(out, GUARD, sizeof(out));
			copy(out + at, src + 3, len);
			CHECK(memcmp(out + at, src + 3, len) == 0);
			CHECK((at == 0 || out[at - 1] == GUARD) && out[at + len] == GUARD);
		}
	}
}

/* The place of `out` in its page is up to 70 bytes before or behind that of src. */
static void check_copies_in_pages(void)
{
	enum { PAGE = 4096 };
	static _Alignas(PAGE) unsigned char src[PAGE], out[2 * PAGE];

	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (unsigned char)(i * 7 + i / 256);
	for (size_t at = 0; at < 140; at++) {
		for (size_t len = 2000; len < 2300; len += 30) {
			memset(out, GUARD, sizeof(out));
			ko_copy_bytes(out + PAGE + at, src + 70, len);
			CHECK(memcmp(out + PAGE + at, src + 70, len) == 0);
			CHECK(out[PAGE + at - 1] == GUARD && out[PAGE + at + len] == GUARD);
		}
	}
}

static void copies_take_all_and_no_more(void **state)
{
	(void)state;
	for (const struct ko_kernels *const *k = ko_kernels_list(); *k; k++) {
		check_copies((*k)->stream);
		check_copies((*k)->copy_by_loop);
	}
	check_copies(ko_copy_bytes);
	check_copies_in_pages();
}

static void streamed_results_equal_ordinary_ones(void **state)
{
	enum { N = 5000 };
	static double in[N], own[N], want[N], out[N + 1];
	union ko_scalar s = { .f64 = 1.0 / 3 };
	struct ko_reducer r = ko_reducer_premul(KOLO_F64, &s.f64);

	(void)state;
	for (int i = 0; i < N; i++) {
		in[i] = 0.1 * i;
		own[i] = 1e3 / (i + 1);
	}
	for (size_t n = 0; n <= N; n += 499) {
		out[n] = -1;
		r.combine(want, in, own, n, &r.s);
		ko_stream_combine(r.combine, out, in, own, n, sizeof(double), &r.s);
		CHECK(memcmp(out, want, n * sizeof(double)) == 0 && out[n] == -1);
		r.first(want, own, n, &r.s);
		ko_stream_fill(r.first, out, own, n, sizeof(double), &r.s);
		CHECK(memcmp(out, want, n * sizeof(double)) == 0 && out[n] == -1);
	}
}

/* Others find out so that there is nothing to do but to copy. */
static void plain_copies_are_one_function(void **state)
{
	(void)state;
	for (int type = 0; type < KO_NTYPES; type++) {
		for (int op = 0; op < KO_NOPS; op++) {
			struct ko_reducer r;

			if (!ko_type_has_op((enum kolo_type)type, (enum kolo_op)op))
				continue;
			r = ko_reducer_make((enum kolo_type)type, (enum kolo_op)op, 3);
			CHECK((r.first == ko_copy((enum kolo_type)type)) == !r.scales);
			CHECK((r.finish == ko_copy((enum kolo_type)type)) == !r.divides);
		}
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(plain_copies_are_one_function),
	cmocka_unit_test(copies_take_all_and_no_more),
	cmocka_unit_test(streamed_results_equal_ordinary_ones),
	cmocka_unit_test(every_loop_equals_its_definition),
	cmocka_unit_test(narrow_types_combine_right_in_every_pair),
	cmocka_unit_test(scaling_dividing_and_copying_equal_their_definitions),
	cmocka_unit_test(casts_equal_their_definition),
	cmocka_unit_test(conversions_inside_the_loops_are_exact_for_every_code),
	cmocka_unit_test(equal_values_leave_the_lower_index),
	cmocka_unit_test(nan_wins_and_minus_zero_is_less),
};

T_MAIN(tests)
