/* Conversions of the 16- and 8-bit types against their definition (tools/common/values.c). */
#include "tests/lib/t.h"
#include "comm/reduce/convert.h"
#include "tools/common/values.h"

#include <math.h>

struct narrow_type {
	enum kolo_type type;
	unsigned codes;
};

static const struct narrow_type types[] = {
	{ KOLO_F16, 1 << 16 },
	{ KOLO_BF16, 1 << 16 },
	{ KOLO_F8E4M3, 1 << 8 },
	{ KOLO_F8E5M2, 1 << 8 },
};

static float widen(enum kolo_type type, unsigned code)
{
	switch (type) {
	case KOLO_F16: return ko_float_of_f16((uint16_t)code);
	case KOLO_BF16: return ko_float_of_bf16((uint16_t)code);
	case KOLO_F8E4M3: return ko_float_of_f8e4m3((uint8_t)code);
	default: return ko_float_of_f8e5m2((uint8_t)code);
	}
}

static unsigned narrow(enum kolo_type type, float x)
{
	switch (type) {
	case KOLO_F16: return ko_f16_of_float(x);
	case KOLO_BF16: return ko_bf16_of_float(x);
	case KOLO_F8E4M3: return ko_f8e4m3_of_float(x);
	default: return ko_f8e5m2_of_float(x);
	}
}

static double defined_value(enum kolo_type type, unsigned code)
{
	uint16_t two = (uint16_t)code;
	uint8_t one = (uint8_t)code;

	return values_decode(type, kolo_type_size(type) == 2 ? (void *)&two : (void *)&one);
}

static unsigned defined_code(enum kolo_type type, float x)
{
	uint16_t two = 0;
	uint8_t one = 0;

	values_encode(type, (double)x, kolo_type_size(type) == 2 ? (void *)&two : (void *)&one);
	return kolo_type_size(type) == 2 ? two : one;
}

/* NaNs compare as NaN. */
static bool same_value(double a, double b)
{
	return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void every_code_has_its_value(void **state)
{
	(void)state;
	for (size_t t = 0; t < ARRAY_LEN(types); t++)
		for (unsigned code = 0; code < types[t].codes; code++)
			CHECK(same_value((double)widen(types[t].type, code),
					 defined_value(types[t].type, code)));
}

static void check_narrow(enum kolo_type type, float x)
{
	unsigned got = narrow(type, x), want = defined_code(type, x);

	CHECK(isnan(x) ? isnan(defined_value(type, got)) : got == want);
}

static void every_value_goes_back_to_its_code(void **state)
{
	(void)state;
	for (size_t t = 0; t < ARRAY_LEN(types); t++) {
		for (unsigned code = 0; code < types[t].codes; code++) {
			float x = widen(types[t].type, code);

			CHECK(isnan(x) ? isnan(widen(types[t].type, narrow(types[t].type, x)))
				       : narrow(types[t].type, x) == code);
		}
	}
}

static void midpoints_and_their_neighbours_round_to_even(void **state)
{
	(void)state;
	for (size_t t = 0; t < ARRAY_LEN(types); t++) {
		for (unsigned code = 0; code < types[t].codes; code++) {
			enum kolo_type type = types[t].type;
			double x = defined_value(type, code), y = defined_value(type, code + 1);
			/* Beyond the last finite value: half a step further. */
			double last_step = x - defined_value(type, code ? code - 1 : 0);
			float middle = (float)(isfinite(y) ? (x + y) / 2 : x + last_step / 2);

			if (!isfinite(x))
				continue;
			check_narrow(type, middle);
			check_narrow(type, nextafterf(middle, INFINITY));
			check_narrow(type, nextafterf(middle, -INFINITY));
			check_narrow(type, nextafterf((float)x, INFINITY));
			check_narrow(type, nextafterf((float)x, -INFINITY));
		}
	}
}

static void any_float_rounds_as_defined(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (size_t t = 0; t < ARRAY_LEN(types); t++)
		for (int i = 0; i < 300000; i++)
			check_narrow(types[t].type, ko_float_of_bits((uint32_t)t_random(&seed)));
}

static void limits_are_those_of_the_formats(void **state)
{
	(void)state;
	CHECK(widen(KOLO_F16, 0x7bff) == 65504.0f && widen(KOLO_F8E4M3, 0x7e) == 448.0f);
	CHECK(widen(KOLO_F8E5M2, 0x7b) == 57344.0f && isinf(widen(KOLO_F8E5M2, 0x7c)));
	CHECK(narrow(KOLO_F8E4M3, INFINITY) == 0x7e && narrow(KOLO_F8E4M3, -1e30f) == 0xfe);
	CHECK(narrow(KOLO_F16, INFINITY) == 0x7c00 && narrow(KOLO_F16, 65520.0f) == 0x7c00);
	CHECK(narrow(KOLO_F16, 65519.0f) == 0x7bff && narrow(KOLO_BF16, 3.4e38f) == 0x7f80);
	CHECK((narrow(KOLO_F8E4M3, NAN) & 0x7f) == 0x7f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_code_has_its_value),
	cmocka_unit_test(every_value_goes_back_to_its_code),
	cmocka_unit_test(midpoints_and_their_neighbours_round_to_even),
	cmocka_unit_test(any_float_rounds_as_defined),
	cmocka_unit_test(limits_are_those_of_the_formats),
};

T_MAIN(tests)
