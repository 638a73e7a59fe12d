/* What cuda/libcuda/kernels.cu does is what the host's loops do: every type and op, any alignment,
 * nothing written beside it. The kernels are run here, compiled as C++ (gpu_kernels.cc). */
#include "cuda/driver/kernel_args.h"
#include "tests/lib/t.h"

#include <stdlib.h>
#include <string.h>

void t_launch(const struct ko_gpu_job *j);
void t_note(const uint32_t *flag, uint32_t *noted);

/* Places begin up to 15 elements later. */
enum { MOST = 1200, ROOM = MOST * 16 + 256, GUARD_BYTE = 0xa5, PLACES = KO_LAUNCHER_PLACES };

static unsigned char in[PLACES][ROOM], out[PLACES][ROOM], want[ROOM];

/* Any bits but those of NaN, whose payload is not promised. */
static void fill(unsigned char *p, enum kolo_type type, uint64_t *seed)
{
	size_t size = kolo_type_size(type);

	for (size_t i = 0; i < ROOM; i++)
		p[i] = (unsigned char)t_random(seed);
	if (ko_type_is_integer(type))
		return;
	/* The exponent's highest bit is not set where all could be: of pairs and complex numbers in
	 * each 4 or 8 bytes. */
	size = size < 8 || type == KOLO_F64 || type == KOLO_C128 || type == KOLO_F64_I32 ? size : 4;
	size = size < 8 ? size : 8;
	for (size_t i = size - 1; i < ROOM; i += size)
		p[i] &= 0xbf;
}

static ko_fill_fn *first_of(const struct ko_kernels *k, const struct ko_gpu_job *j)
{
	if (!j->scales)
		return k->copy[j->type];
	return ko_is_logical(j->how) ? k->truth[j->type] : k->scale[j->type];
}

/* What the host makes of it, in `want`. */
static void expect(const struct ko_gpu_job *j)
{
	const struct ko_kernels *k = ko_kernels_list()[0];

	first_of(k, j)(want, j->ins[0], j->n, &j->s);
	for (int i = 1; i < j->nins; i++)
		k->combine[j->type][j->how](want, want, j->ins[i], j->n, &j->s);
	if (j->divides)
		k->divide[j->type](want, want, j->n, &j->s);
}

static void check_place(const unsigned char *place, size_t offset, size_t len)
{
	for (size_t i = 0; i < offset; i++)
		CHECK(place[i] == GUARD_BYTE);
	CHECK(memcmp(place + offset, want, len) == 0);
	for (size_t i = offset + len; i < ROOM; i++)
		CHECK(place[i] == GUARD_BYTE);
}

static void try_job(struct ko_gpu_job j, uint64_t *seed)
{
	size_t size = kolo_type_size(j.type), offsets[PLACES], offset = t_random(seed) % 16 * size;
	bool congruent = t_random(seed) % 2;

	for (int k = 0; k < j.nins; k++) {
		fill(in[k], j.type, seed);
		j.ins[k] = in[k] + (congruent ? offset : size * (t_random(seed) % 7));
	}
	for (int k = 0; k < j.nouts; k++) {
		memset(out[k], GUARD_BYTE, ROOM);
		offsets[k] = congruent ? offset : t_random(seed) % 33;
		j.outs[k] = out[k] + offsets[k];
	}
	expect(&j);
	t_launch(&j);
	for (int k = 0; k < j.nouts; k++)
		check_place(out[k], offsets[k], j.n * size);
}

static union ko_scalar factor_of(enum kolo_type type)
{
	if (ko_type_is_integer(type))
		return (union ko_scalar){ .u64 = 3 };
	return type == KOLO_F64 || type == KOLO_C128 ? (union ko_scalar){ .f64 = 0.3 }
						     : (union ko_scalar){ .f32 = 0.3f };
}

/* Of those beyond the ways of combining the first scales, and the second copies. */
static bool has_way(int type, int way)
{
	if (way > KO_NCOMBINES)
		return true;
	return ko_type_combines((enum kolo_type)type,
				way < KO_NCOMBINES ? (enum ko_combine)way : KO_SUM_SCALED);
}

/* The way of job number k: those of combining, and then scale and copy. Of one place a logical one
 * makes 0 or 1. */
static void set_way(struct ko_gpu_job *j, int way, int k)
{
	bool integer = ko_type_is_integer(j->type);

	j->how = way < KO_NCOMBINES ? (enum ko_combine)way : integer && k % 2 ? KO_LOR : KO_SUM;
	j->scales = way == KO_NCOMBINES || (way < KO_NCOMBINES && k % 2 &&
					    (way == KO_SUM_SCALED || ko_is_logical(j->how)));
	j->divides = way == KO_SUM && integer && k % 2;
}

/* Of one place, or of several, on to several; the first is multiplied, the last divided. */
static void every_type_op_and_alignment_is_as_on_the_host(void **state)
{
	static const int ins[] = { 2, 2, 3, 4, 7, PLACES }, outs[] = { 1, 2, 1, 4, PLACES };
	uint64_t seed = 1;

	(void)state;
	for (int type = 0; type < KO_NTYPES; type++)
		for (int how = 0; how < KO_NCOMBINES + 2; how++)
			for (int k = 0; k < 90 && has_way(type, how); k++) {
				struct ko_gpu_job j = { .type = (enum kolo_type)type,
							.n = k < 20 ? (size_t)k
								    : t_random(&seed) % MOST };

				j.s = factor_of(j.type);
				j.nins = how < KO_NCOMBINES ? ins[(size_t)k % ARRAY_LEN(ins)] : 1;
				j.nouts = outs[(size_t)k % ARRAY_LEN(outs)];
				set_way(&j, how, k);
				try_job(j, &seed);
			}
}

/* Any place that is written may be one that is read. */
static void in_place_is_as_out_of_place(void **state)
{
	uint64_t seed = 2;

	(void)state;
	for (int k = 0; k < 200; k++) {
		struct ko_gpu_job j = { .n = t_random(&seed) % MOST,
					.type = KOLO_F32,
					.nins = 2 + k % 4,
					.nouts = 1 + k % 3 };
		int first = (int)(t_random(&seed) % (unsigned)j.nins);

		for (int i = 0; i < j.nins; i++) {
			fill(in[i], j.type, &seed);
			j.ins[i] = in[i] + 4 * (k % 5 + i % (1 + k % 2));
		}
		for (int i = 0; i < j.nouts; i++)
			j.outs[i] = i == 1 ? (void *)out[i]
					   : (void *)(uintptr_t)j.ins[(first + i) % j.nins];
		expect(&j);
		t_launch(&j);
		for (int i = 0; i < j.nouts; i++)
			CHECK(memcmp(j.outs[i], want, 4 * j.n) == 0);
	}
}

/* Unless a flag is set: then it does nothing. */
static void a_flag_that_is_set_stops_it(void **state)
{
	uint32_t flag = 0;
	struct ko_gpu_job j = { .n = 1000,
				.type = KOLO_I32,
				.unless = &flag,
				.nins = 2,
				.ins = { in[0], in[1] },
				.nouts = 1,
				.outs = { out[0] } };
	uint64_t seed = 3;

	(void)state;
	fill(in[0], j.type, &seed);
	fill(in[1], j.type, &seed);
	memset(out[0], GUARD_BYTE, ROOM);
	expect(&j);
	flag = 1;
	t_launch(&j);
	for (size_t i = 0; i < ROOM; i++)
		CHECK(out[0][i] == GUARD_BYTE);
	flag = 0;
	t_launch(&j);
	check_place(out[0], 0, 4 * j.n);
}

/* Once a kernel has seen the flag, its note stays. */
static void a_flag_is_noted_for_good(void **state)
{
	uint32_t flag = 0, noted = 0;

	(void)state;
	t_note(NULL, NULL); /* it is tried so */
	t_note(&flag, &noted);
	CHECK(noted == 0);
	flag = 1;
	t_note(&flag, &noted);
	CHECK(noted == 1);
	flag = 0;
	t_note(&flag, &noted);
	CHECK(noted == 1);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_type_op_and_alignment_is_as_on_the_host),
	cmocka_unit_test(in_place_is_as_out_of_place),
	cmocka_unit_test(a_flag_that_is_set_stops_it),
	cmocka_unit_test(a_flag_is_noted_for_good),
};

T_MAIN(tests)
