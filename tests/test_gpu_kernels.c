/* What cuda/kernels.cu does is what the host's loops do: every type and op, any alignment, nothing written beside it. The
 * kernels are run here, compiled as C++ (gpu_kernels.cc). */
#include "../cuda/job.h"
#include "t.h"

#include <stdlib.h>
#include <string.h>

void t_launch(const struct ko_gpu_job *j);

enum { MOST = 1200, ROOM = MOST * 8 + 64, GUARD_BYTE = 0xa5 };

static unsigned char in[ROOM], own[ROOM], out[ROOM], also[ROOM], want[ROOM];

/* Any bits but those of NaN, whose payload is not promised. */
static void fill(unsigned char *p, enum kolo_type type, uint64_t *seed)
{
	size_t size = kolo_type_size(type);

	for (size_t i = 0; i < ROOM; i++)
		p[i] = (unsigned char)t_random(seed);
	if (type <= KOLO_U64)
		return;
	/* The exponent's highest bit is not set where all could be. */
	for (size_t i = size - 1; i < ROOM; i += size)
		p[i] &= 0xbf;
}

/* What the host makes of it, in `want`. */
static void expect(const struct ko_gpu_job *j)
{
	const struct ko_kernels *k = ko_kernels_list()[0];

	if (j->in && j->own) {
		k->combine[j->type][j->how](want, j->in, j->own, j->n, &j->s);
		if (j->divides)
			k->divide[j->type](want, want, j->n, &j->s);
	} else {
		(j->scales ? k->scale : k->copy)[j->type](want, j->in ? j->in : j->own, j->n, &j->s);
	}
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
	size_t size = kolo_type_size(j.type), offset = t_random(seed) % 33, other = t_random(seed) % 33;
	size_t len = j.n * size;
	bool congruent = t_random(seed) % 2;

	fill(in, j.type, seed);
	fill(own, j.type, seed);
	memset(out, GUARD_BYTE, ROOM);
	memset(also, GUARD_BYTE, ROOM);
	if (j.in)
		j.in = in + size * (congruent ? offset % 16 : t_random(seed) % 7);
	if (j.own)
		j.own = own + size * (congruent ? offset % 16 : t_random(seed) % 7);
	offset = congruent ? offset % 16 * size : offset;
	other = congruent ? offset : other;
	j.out = out + offset;
	j.also = t_random(seed) % 2 ? also + other : NULL;
	expect(&j);
	t_launch(&j);
	check_place(out, offset, len);
	if (j.also)
		check_place(also, other, len);
}

static union ko_scalar factor_of(enum kolo_type type)
{
	if (type <= KOLO_U64)
		return (union ko_scalar){ .u64 = 3 };
	return type == KOLO_F64 ? (union ko_scalar){ .f64 = 0.3 } : (union ko_scalar){ .f32 = 0.3f };
}

static void every_type_op_and_alignment_is_as_on_the_host(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (int type = 0; type < KO_NTYPES; type++)
		for (int how = 0; how < KO_NCOMBINES + 3; how++)
			for (int k = 0; k < 60; k++) {
				struct ko_gpu_job j = { .type = (enum kolo_type)type,
							.n = k < 20 ? (size_t)k : t_random(&seed) % MOST };

				j.s = factor_of(j.type);
				j.in = how < KO_NCOMBINES + 1 ? in : NULL;
				j.own = how != KO_NCOMBINES ? own : NULL;
				j.how = how < KO_NCOMBINES ? (enum ko_combine)how : KO_SUM;
				j.scales = how == KO_NCOMBINES + 1;
				j.divides = how == KO_SUM && type <= KOLO_U64 && k % 2;
				if (how == KO_NCOMBINES + 2)
					j.in = NULL;
				try_job(j, &seed);
			}
}

/* out may be own, and so may the second place. */
static void in_place_is_as_out_of_place(void **state)
{
	uint64_t seed = 2;

	(void)state;
	for (int k = 0; k < 100; k++) {
		struct ko_gpu_job j = { .in = in + 4 * (k % 5),
					.own = own + 4 * (k % 3),
					.out = k % 2 ? own + 4 * (k % 3) : out,
					.n = t_random(&seed) % MOST,
					.type = KOLO_F32 };

		if (k % 2 == 0)
			j.also = own + 4 * (k % 3);
		fill(in, j.type, &seed);
		fill(own, j.type, &seed);
		expect(&j);
		t_launch(&j);
		CHECK(memcmp(own + 4 * (k % 3), want, 4 * j.n) == 0);
		CHECK(memcmp(j.out, want, 4 * j.n) == 0);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_type_op_and_alignment_is_as_on_the_host),
	cmocka_unit_test(in_place_is_as_out_of_place),
};

T_MAIN(tests)
