/* Gradients of micro-batches come one by one, at any time (config.micros), and at stage 3 at any
 * place, another one on each rank. The results have the bits of gradients that come at once. */
#include "kolo/kolo_zero_device.h"
#include "tests/lib/t.h"
#include "tests/zero/step/give.h"
#include "tests/zero/step/masters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of many buckets, small ones, one in 16 bits whose gradients are floats. */
enum { TENSORS = 5, LARGEST = 9001, ALL = 2600 + LARGEST + 3 + 40 + 900, STEPS = 3 };

static const size_t sizes[TENSORS] = { 2600, LARGEST, 3, 40, 900 };

static void describe(struct kolo_zero_tensor *out)
{
	static const char *const names[TENSORS] = { "a", "b", "c", "d", "e" };

	for (int i = 0; i < TENSORS; i++)
		out[i] = (struct kolo_zero_tensor){ .name = names[i],
						    .shape = { sizes[i] },
						    .ndims = 1,
						    .type = i == 4 ? KOLO_BF16 : KOLO_F32,
						    .gradient_type = KOLO_F32 };
}

static bool says(int rc, int want, const char *text)
{
	return rc == want && strstr(kolo_last_error(), text);
}

/* Of a micro-batch; `at` is the number of the micro-step. */
static void fill(float *out, int rank, int at, int micro, int tensor)
{
	for (size_t i = 0; i < sizes[tensor]; i++) {
		uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u +
			     (uint64_t)(rank * 131 + at * 17 + micro * 5 + tensor);

		x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
		out[i] = (float)(int32_t)(x >> 32) / 2147483648.0f;
	}
}

struct way {
	int stage, overlap, accumulation, micros;
	enum kolo_zero_place optimizer, param;
	bool device;
};

static struct kolo_zero_config config_of(const struct way *w)
{
	struct kolo_zero_config c;

	kolo_zero_config_init(&c);
	c.stage = w->stage;
	c.overlap = w->overlap;
	c.accumulation = w->accumulation;
	c.micros = w->micros;
	c.clip = 0.5;
	c.reduce_bucket = c.gather_bucket = 1024;
	c.offload_optimizer.place = w->optimizer;
	c.offload_optimizer.ratio = 0.5;
	c.offload_param.place = w->param;
	if (w->device)
		CHECK(kolo_zero_arena_open(64 << 20, 0, &c.device) == 0);
	return c;
}

/* All micro-batches' gradients of a tensor, added up as floats. */
static void add_up(float *sum, float *one, int rank, int at, int micros, int tensor)
{
	fill(sum, rank, at, 0, tensor);
	for (int m = 1; m < micros; m++) {
		fill(one, rank, at, m, tensor);
		for (size_t i = 0; i < sizes[tensor]; i++)
			sum[i] += one[i];
	}
}

/* Each tensor's sum at once. */
static void report_sums(struct kolo_zero *zero, int rank, int at, int micros, float *g)
{
	CHECK(kolo_zero_forward(zero, 2) == 0 && kolo_zero_backward(zero, 0.5) == 0);
	for (int t = TENSORS; t-- > 0;) {
		add_up(g, g + LARGEST, rank, at, micros, t);
		CHECK(give(zero, t, g) == 0);
	}
}

/* Micro-batch by micro-batch, and within each the tensors in an order of the rank's own, which
 * ranks of stage 3 may have only if they reduce beside their gathers. The loss comes at some time.
 * Tensor 3 is summed by the program. */
static void report_micros(struct kolo_zero *zero, const struct way *w, int rank, int at, float *g)
{
	bool alike = w->stage == 3 && !w->overlap;
	uint64_t random = (uint64_t)(alike ? 0 : rank) * 99 + (uint64_t)at;
	int told = (int)(t_random(&random) % (unsigned)w->micros);

	CHECK(kolo_zero_forward(zero, 2) == 0);
	for (int t = 0; t < TENSORS; t++)
		CHECK(kolo_zero_use(zero, t, NULL) == 0);
	for (int t = 0; t < TENSORS; t++)
		CHECK(kolo_zero_release(zero, t) == 0);
	for (int m = 0; m < w->micros; m++) {
		int first = (int)(t_random(&random) % TENSORS);

		if (m == told)
			CHECK(kolo_zero_backward(zero, 0.5) == 0);
		for (int k = 0; k < TENSORS; k++) {
			int t = (first + k) % TENSORS;

			if (t == 3)
				continue;
			fill(g, rank, at, m, t);
			CHECK(kolo_zero_gradient(zero, t, g) == 0);
		}
	}
	add_up(g, g + LARGEST, rank, at, w->micros, 3);
	CHECK(kolo_zero_gradient(zero, 3, g) == 0);
}

/* Trains with the gradients of `micros` micro-batches in each micro-step, and gets the masters. */
static void train(struct kolo_comm *comm, const struct way *w, int micros, const char *dir,
		  float *masters)
{
	struct kolo_zero_tensor tensors[TENSORS];
	struct kolo_zero_result result;
	struct kolo_zero_config c = config_of(w);
	struct kolo_zero *zero;
	float *g = calloc(2, LARGEST * sizeof(*g));
	int rank = kolo_comm_rank(comm);

	CHECK(g);
	describe(tensors);
	tensors[3].summed = w->micros > 0;
	c.offload_optimizer.path = c.offload_param.path = dir;
	CHECK(kolo_zero_create(comm, &c, tensors, TENSORS, &zero) == 0);
	for (int at = 0; at < STEPS * w->accumulation; at++) {
		if (w->micros)
			report_micros(zero, w, rank, at, g);
		else
			report_sums(zero, rank, at, micros, g);
		CHECK(kolo_zero_step(zero, &result) == 0);
		CHECK(result.missing == 0 && result.partial == 0);
	}
	CHECK(result.updated && result.step == STEPS && result.loss == 0.5);
	get_masters(zero, sizes, TENSORS, masters);
	kolo_zero_destroy(zero);
	kolo_zero_device_close(c.device);
	free(g);
}

/* What has the same bits: sums at once. Stages 0 and 1 weigh each micro-batch before they add it to
 * the sum of micro-steps; with those, stage 0 is compared with the other stages and places. */
static struct way plain_of(const struct way *w)
{
	bool weighs = w->stage < 2 && w->accumulation > 1 && w->micros > 1;

	return (struct way){ .stage = weighs ? 0 : w->stage,
			     .overlap = !weighs,
			     .accumulation = w->accumulation,
			     .micros = weighs ? w->micros : 0 };
}

static void add_micros(struct t_rank *t)
{
	static const struct way ways[] = {
		{ 0, 1, 1, 3, 0, 0, false }, { 1, 0, 1, 2, 0, 0, false },
		{ 2, 1, 1, 3, 0, 0, false }, { 3, 1, 1, 3, 0, 0, false },
		{ 1, 1, 2, 3, 0, 0, false }, { 2, 0, 2, 2, 0, 0, false },
		{ 3, 1, 2, 3, 0, 0, false }, { 3, 0, 1, 3, 0, 0, false },
		{ 0, 1, 2, 1, 0, 0, false }, { 2, 1, 1, 3, 1, 0, true },
		{ 3, 1, 1, 2, 1, 1, true },  { 3, 1, 2, 3, 1, 0, true },
		{ 1, 1, 2, 2, 1, 0, true },
	};
	struct kolo_comm *comm = t_comm_with(t, (struct kolo_comm_attr){ .algorithm = "ring" });
	float *once = calloc(ALL, sizeof(*once)), *each = calloc(ALL, sizeof(*each));

	CHECK(once && each);
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		struct way plain = plain_of(&ways[w]);

		if (!t_sampled(w + (uint64_t)t->nranks, t_is_slow() ? 3 : 1))
			continue;
		train(comm, &plain, ways[w].micros, "/tmp", once);
		train(comm, &ways[w], ways[w].micros, "/tmp", each);
		CHECK(memcmp(once, each, ALL * sizeof(*once)) == 0);
	}
	free(once);
	free(each);
	kolo_comm_destroy(comm);
}

static void gradients_of_micro_batches_add_up_to_that_of_the_step(void **state)
{
	(void)state;
	for (int nranks = 1; nranks <= 3; nranks++)
		t_processes(nranks, add_micros, NULL);
}

/* ---- Stage 3: other places ------------------------------------------------------------------- */

/* Bytes of a buffer for a bucket of 1024 floats, of which each rank's part is rounded up. */
enum { BUCKET = 4096 + 3 * 64 };

/* Bytes of buckets that the engine has now. */
static size_t bucket_bytes(const struct kolo_zero *zero)
{
	struct kolo_zero_memory memory;

	for (int k = 0; kolo_zero_memory_get(zero, k, &memory) == 0; k++)
		if (strcmp(memory.kind, "buckets") == 0)
			return memory.bytes;
	return 0;
}

/* Rank 0 reports each gradient at its tensor's use, the others some uses later, the last one all at
 * the end; tensor 2 it does not report at all. */
static void backward_in_places(struct kolo_zero *zero, int rank, int nranks, int at, float *g)
{
	int late = rank == nranks - 1 ? TENSORS : rank;

	CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
	for (int k = 0; k < TENSORS + late; k++) {
		int used = TENSORS - 1 - k, given = used + late;

		if (used >= 0)
			CHECK(kolo_zero_use(zero, used, NULL) == 0 &&
			      kolo_zero_release(zero, used) == 0);
		if (given >= TENSORS || (given == 2 && rank == nranks - 1))
			continue;
		fill(g, rank, at, 0, given);
		CHECK(kolo_zero_gradient(zero, given, g) == 0);
	}
}

static void train_in_places(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	float *masters[2], *g = calloc(LARGEST, sizeof(*g));

	CHECK(g);
	for (int way = 0; way < 2; way++) {
		struct way w = { .stage = 2 + way, .overlap = 1, .accumulation = 1 };
		struct kolo_zero_tensor tensors[TENSORS];
		struct kolo_zero_traffic traffic;
		struct kolo_zero_result result;
		struct kolo_zero_config c = config_of(&w);
		struct kolo_zero *zero;
		float *out = masters[way] = calloc(ALL, sizeof(*g));

		CHECK(out);
		describe(tensors);
		CHECK(kolo_zero_create(comm, &c, tensors, TENSORS, &zero) == 0);
		for (int at = 0; at < STEPS; at++) {
			backward_in_places(zero, t->rank, t->nranks, at, g);
			CHECK(kolo_zero_step(zero, &result) == 0);
			CHECK(result.updated && result.missing == 0 && result.partial == 1);
		}
		for (int i = 0; i < TENSORS; out += sizes[i], i++)
			CHECK(kolo_zero_get(zero, i, out) == 0);
		CHECK(kolo_zero_traffic_get(zero, &traffic) == 0);
		/* There is a buffer for each bucket at most, and stage 2 gathers in two. */
		CHECK(bucket_bytes(zero) <= (traffic.reductions / STEPS + 2) * BUCKET);
		kolo_zero_destroy(zero);
	}
	CHECK(memcmp(masters[0], masters[1], ALL * sizeof(*g)) == 0);
	free(masters[0]);
	free(masters[1]);
	free(g);
	kolo_comm_destroy(comm);
}

static void at_stage_3_ranks_report_at_other_places(void **state)
{
	(void)state;
	/* It waits for some seconds until there are buffers enough. */
	t_processes(3, train_in_places, NULL);
}

/* A rank that fails between gathers ends the reductions of the others, with its reason. */
static void fail_between(struct t_rank *t)
{
	struct way w = { .stage = 3, .overlap = 1, .accumulation = 1 };
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_tensor tensors[TENSORS];
	struct kolo_zero_config c = config_of(&w);
	struct kolo_zero *zero;
	float *g = calloc(LARGEST, sizeof(*g));
	int rc = 0;

	CHECK(g);
	describe(tensors);
	CHECK(kolo_zero_create(comm, &c, tensors, TENSORS, &zero) == 0);
	CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
	for (int i = 0; i < TENSORS; i++)
		CHECK(kolo_zero_use(zero, i, NULL) == 0 && kolo_zero_release(zero, i) == 0);
	/* The ranks disagree about what is gathered next. Rank 1 waits for reductions then. */
	if (t->rank == 0)
		CHECK(kolo_zero_use(zero, 0, NULL) == KOLO_EMISMATCH);
	for (int i = TENSORS; rc == 0 && t->rank == 1 && i-- > 0;)
		rc = kolo_zero_gradient(zero, i, g);
	if (t->rank == 1)
		rc = rc < 0 ? rc : kolo_zero_use(zero, 1, NULL);
	if (t->rank == 1)
		CHECK(rc == KOLO_EMISMATCH ||
		      (rc == KOLO_EABORTED && strstr(kolo_last_error(), "rank 0")));
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
	free(g);
}

static void a_failure_among_gathers_ends_reductions_too(void **state)
{
	(void)state;
	t_processes(2, fail_between, NULL);
}

/* ---- Misuse ---------------------------------------------------------------------------------- */

static void misuse(struct t_rank *t)
{
	struct way w = { .stage = 1, .overlap = 1, .accumulation = 1, .micros = 2 };
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_tensor tensors[TENSORS];
	struct kolo_zero_result result;
	struct kolo_zero_config c = config_of(&w);
	struct kolo_zero *zero;
	float *g = calloc(LARGEST, sizeof(*g));

	CHECK(g);
	describe(tensors);
	c.micros = -1;
	CHECK(says(kolo_zero_create(comm, &c, tensors, TENSORS, &zero), KOLO_EINVAL,
		   "config.micros is -1"));
	c.micros = 0;
	tensors[1].summed = 1;
	CHECK(says(kolo_zero_create(comm, &c, tensors, TENSORS, &zero), KOLO_EINVAL,
		   "tensor 'b' is summed, and config.micros is 0"));
	c.micros = 2 + t->rank;
	CHECK(kolo_zero_create(comm, &c, tensors, TENSORS, &zero) == KOLO_EMISMATCH);
	c.micros = 2;
	tensors[1].summed = t->rank;
	CHECK(kolo_zero_create(comm, &c, tensors, TENSORS, &zero) == KOLO_EMISMATCH);
	tensors[1].summed = 0;
	c.strict = 1;
	CHECK(kolo_zero_create(comm, &c, tensors, TENSORS, &zero) == 0);
	CHECK(says(give(zero, 0, g), KOLO_EINVAL, "outside of kolo_zero_forward"));
	CHECK(kolo_zero_forward(zero, 1) == 0);
	CHECK(give(zero, 0, g) == 0 && give(zero, 0, g) == 0);
	CHECK(says(give(zero, 0, g), KOLO_EINVAL,
		   "gradient number 3 of tensor 'a' in a micro-step, and config.micros is 2"));
	CHECK(says(kolo_zero_step(zero, NULL), KOLO_EINVAL, "without kolo_zero_backward"));
	CHECK(kolo_zero_backward(zero, 0) == 0);
	CHECK(says(kolo_zero_backward(zero, 0), KOLO_EINVAL, "kolo_zero_forward before it"));
	for (int i = 1; i < TENSORS; i++)
		CHECK(give(zero, i, g) == 0 && (i == 2 || give(zero, i, g) == 0));
	CHECK(says(kolo_zero_step(zero, &result), KOLO_EINVAL,
		   "rank 0 gave fewer gradients of tensor 'c' than micro-batches with samples"));
	CHECK(result.partial == 1 && result.missing == 0);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
	free(g);
}

static void wrong_numbers_of_micro_batches_are_refused(void **state)
{
	(void)state;
	t_processes(2, misuse, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(gradients_of_micro_batches_add_up_to_that_of_the_step),
	cmocka_unit_test(at_stage_3_ranks_report_at_other_places),
	cmocka_unit_test(a_failure_among_gathers_ends_reductions_too),
	cmocka_unit_test(wrong_numbers_of_micro_batches_are_refused),
};

T_MAIN(tests)
