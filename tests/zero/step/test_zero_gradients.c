/* Gradients in f32 of tensors in 16 bits: nothing is rounded between the model and the masters, at
 * any stage and place. */
#include "kolo/kolo_zero_device.h"
#include "tests/lib/t.h"
#include "tests/zero/step/give.h"
#include "tests/zero/step/masters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor that is cut by buckets, one that travels alone, small ones. */
enum { TENSORS = 5, LARGEST = 66001, ALL = 2600 + LARGEST + 3 + 40 + 900, STEPS = 3 };

static const size_t sizes[TENSORS] = { 2600, LARGEST, 3, 40, 900 };

/* f32 of any, and its own type of some. */
static void describe(struct kolo_zero_tensor *out, bool narrow)
{
	static const enum kolo_type types[TENSORS] = { KOLO_BF16, KOLO_F16, KOLO_F16, KOLO_BF16,
						       KOLO_F32 };
	static const char *const names[TENSORS] = { "a", "b", "c", "d", "e" };

	for (int i = 0; i < TENSORS; i++) {
		out[i] = (struct kolo_zero_tensor){ .name = names[i],
						    .shape = { sizes[i] },
						    .ndims = 1,
						    .type = narrow ? types[i] : KOLO_F32 };
		if (narrow && (types[i] != KOLO_F32 || i % 2))
			out[i].gradient_type = KOLO_F32;
	}
}

/* With more bits than 16 hold. */
static float gradient_at(int rank, int step, int tensor, size_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)(rank * 31 + step * 7 + tensor);

	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
	return (float)(int32_t)(x >> 32) / 2147483648.0f;
}

struct way {
	int stage, overlap, accumulation;
	enum kolo_zero_place optimizer, param;
	bool device;
};

/* Trains by Adam on gradients that a formula gives, and gets the masters. */
static void train(struct kolo_comm *comm, const struct way *w, bool narrow, const char *dir,
		  float *masters)
{
	struct kolo_zero_tensor tensors[TENSORS];
	struct kolo_zero_config c;
	struct kolo_zero *zero;
	float *gradient = calloc(LARGEST, sizeof(*gradient));
	int rank = kolo_comm_rank(comm);

	CHECK(gradient);
	describe(tensors, narrow);
	kolo_zero_config_init(&c);
	c.stage = w->stage;
	c.overlap = w->overlap;
	c.accumulation = w->accumulation;
	c.reduce_bucket = c.gather_bucket = 1024;
	c.offload_optimizer.place = w->optimizer;
	c.offload_optimizer.ratio = 0.5;
	c.offload_param.place = w->param;
	c.offload_optimizer.path = c.offload_param.path = dir;
	if (w->device)
		CHECK(kolo_zero_arena_open(64 << 20, 0, &c.device) == 0);
	CHECK(kolo_zero_create(comm, &c, tensors, TENSORS, &zero) == 0);
	for (int step = 0; step < STEPS * w->accumulation; step++) {
		CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
		for (int t = TENSORS; t-- > 0;) {
			for (size_t i = 0; i < sizes[t]; i++)
				gradient[i] = gradient_at(rank, step, t, i);
			CHECK(give(zero, t, gradient) == 0);
		}
		CHECK(kolo_zero_step(zero, NULL) == 0);
	}
	get_masters(zero, sizes, TENSORS, masters);
	kolo_zero_destroy(zero);
	kolo_zero_device_close(c.device);
	free(gradient);
}

static void compare(struct t_rank *t)
{
	static const struct way ways[] = {
		{ 0, 1, 1, 0, 0, false }, { 1, 0, 1, 0, 0, false }, { 2, 1, 1, 0, 0, false },
		{ 3, 1, 1, 0, 0, false }, { 1, 1, 2, 0, 0, false }, { 2, 0, 2, 0, 0, false },
		{ 3, 1, 2, 0, 0, false }, { 0, 1, 1, 0, 0, true },  { 2, 1, 1, 1, 0, true },
		{ 3, 1, 1, 1, 1, true },  { 3, 1, 2, 1, 0, true },
	};
	struct kolo_comm *comm = t_comm_with(t, (struct kolo_comm_attr){ .algorithm = "ring" });
	float *wide = calloc(ALL, sizeof(*wide)), *narrow = calloc(ALL, sizeof(*narrow));

	CHECK(wide && narrow);
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		struct way plain = { .stage = ways[w].accumulation == 1 ? 0 : ways[w].stage,
				     .overlap = 1,
				     .accumulation = ways[w].accumulation };

		if (!t_sampled(w + (uint64_t)t->nranks, t_is_slow() ? 3 : 1))
			continue;
		/* The masters of tensors in f32 are what they should be. */
		train(comm, &plain, false, "/tmp", wide);
		train(comm, &ways[w], true, "/tmp", narrow);
		CHECK(memcmp(wide, narrow, ALL * sizeof(*wide)) == 0);
	}
	free(wide);
	free(narrow);
	kolo_comm_destroy(comm);
}

static void gradients_in_f32_reach_masters_unrounded(void **state)
{
	(void)state;
	for (int nranks = 1; nranks <= 3; nranks++)
		t_processes(nranks, compare, NULL);
}

static void refuse(struct t_rank *t)
{
	static const struct {
		enum kolo_type type, gradient;
		const char *says;
	} bad[] = {
		{ KOLO_F32, KOLO_BF16, "of type f32, and its gradients are of type bf16" },
		{ KOLO_F16, KOLO_BF16, "of type f16, and its gradients are of type bf16" },
		{ KOLO_BF16, KOLO_F64, "gradients are of type f64" },
		{ KOLO_BF16, (enum kolo_type)99, "gradients are of type unknown" },
	};
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_config c;
	struct kolo_zero *zero;

	kolo_zero_config_init(&c);
	for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
		struct kolo_zero_tensor x = { .name = "x",
					      .shape = { 8 },
					      .ndims = 1,
					      .type = bad[k].type,
					      .gradient_type = bad[k].gradient };

		CHECK(kolo_zero_create(comm, &c, &x, 1, &zero) == KOLO_EINVAL);
		CHECK(strstr(kolo_last_error(), bad[k].says));
	}
	/* Ranks agree on it. */
	{
		struct kolo_zero_tensor x = { .name = "x",
					      .shape = { 8 },
					      .ndims = 1,
					      .type = KOLO_BF16,
					      .gradient_type = t->rank ? KOLO_F32 : KOLO_BF16 };

		CHECK(kolo_zero_create(comm, &c, &x, 1, &zero) == KOLO_EMISMATCH);
		x.gradient_type = t->rank ? (enum kolo_type)0 : KOLO_BF16;
		CHECK(kolo_zero_create(comm, &c, &x, 1, &zero) == 0);
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void other_types_of_gradients_are_refused(void **state)
{
	(void)state;
	t_processes(2, refuse, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(gradients_in_f32_reach_masters_unrounded),
	cmocka_unit_test(other_types_of_gradients_are_refused),
};

T_MAIN(tests)
