/* A grid, a pipeline and the ZeRO engine together: stages train with the bits of one rank per
 * replica, at every stage of ZeRO. */
#include "kolo/kolo_parallel.h"
#include "kolo/kolo_zero.h"
#include "tests/lib/t.h"

#include <stdlib.h>
#include <string.h>

/* Parts y = x w + b, element by element; the loss is the mean of (y - target)^2 / 2. */
enum { PARTS = 4, N = 1500, MICROS = 4, UPDATES = 3, TENSORS = 2 * PARTS };

struct trainer {
	const struct kolo_grid_place *place;
	struct kolo_zero *zero;
	int update;
	enum kolo_type type;
	float *values[TENSORS];     /* of this rank's parts, as floats: w, b, w, .. by part */
	float *sums[TENSORS];       /* of their gradients, over micro-batches */
	float (*inputs)[MICROS][N]; /* of each part, by buffer */
	float (*passed)[MICROS][N]; /* one stage: what parts give each other, */
	float (*back)[MICROS][N];   /* and back */
	float (*errors)[N];         /* of the last part */
	double loss;
};

static float sample_at(const struct trainer *t, int micro, int i, int what)
{
	unsigned x = (unsigned)(((t->update * 8 + t->place->data) * MICROS + micro) * N + i);

	x = (x * 2 + (unsigned)what) * 2654435761u;
	x ^= x >> 15;
	return (float)(x * 2246822519u >> 8) / (1 << 24) - 0.5f;
}

static void forward(struct trainer *t, const struct kolo_action *a,
		    const struct kolo_pipeline_tensors *tensors)
{
	int p = a->part, j = a->micro;
	bool alone = t->place->pipe_size == 1, last = p == PARTS - 1;
	const float *w = t->values[2 * p], *b = t->values[2 * p + 1];
	const float *in = alone && p ? t->passed[p - 1][j] : tensors->input;
	float *kept = t->inputs[p][a->buffer];
	float *out = last ? t->errors[j] : alone ? t->passed[p][j] : tensors->output;

	for (int i = 0; i < N; i++) {
		kept[i] = p ? in[i] : sample_at(t, j, i, 0);
		out[i] = kept[i] * w[i] + b[i];
		if (last) {
			out[i] -= sample_at(t, j, i, 1);
			t->loss += (double)(out[i] * out[i]) / (2 * N * MICROS);
		}
	}
}

static void backward(struct trainer *t, const struct kolo_action *a,
		     const struct kolo_pipeline_tensors *tensors)
{
	int p = a->part, j = a->micro;
	bool alone = t->place->pipe_size == 1, last = p == PARTS - 1;
	bool inputs = a->type != KOLO_ACTION_BACKWARD_WEIGHT;
	bool weights = a->type != KOLO_ACTION_BACKWARD_INPUT;
	const float *kept = t->inputs[p][a->buffer];
	const float *g = last ? t->errors[j] : alone ? t->back[p + 1][j] : tensors->output_gradient;
	float *out = alone ? t->back[p][j] : tensors->input_gradient;

	for (int i = 0; i < N; i++) {
		if (inputs && p)
			out[i] = g[i] * t->values[2 * p][i];
		if (weights) { /* a mean over micro-batches */
			t->sums[2 * p][i] += g[i] * kept[i] / MICROS;
			t->sums[2 * p + 1][i] += g[i] / MICROS;
		}
	}
}

static int compute(void *arg, const struct kolo_action *a,
		   const struct kolo_pipeline_tensors *tensors)
{
	if (a->type == KOLO_ACTION_FORWARD)
		forward(arg, a, tensors);
	else
		backward(arg, a, tensors);
	return 0;
}

/* Whether this rank's stage has the part. */
static bool has(const struct kolo_grid_place *place, int part)
{
	return part % place->pipe_size == place->pipe;
}

/* One update. Weights are used over the whole batch, and each gradient is reported once. */
static void update(struct trainer *t, struct kolo_pipeline_executor *e)
{
	int mine[TENSORS], n = 0;
	struct kolo_zero_result result;

	for (int k = 0; k < TENSORS; k++)
		if (has(t->place, k / 2))
			mine[n++] = k;
	CHECK(kolo_zero_forward(t->zero, MICROS) == 0);
	for (int i = 0; i < n; i++) {
		const void *values;

		CHECK(kolo_zero_use(t->zero, i, &values) == 0);
		CHECK(kolo_cast(values, t->type, t->values[mine[i]], KOLO_F32, N, 1) == 0);
		memset(t->sums[mine[i]], 0, N * sizeof(float));
	}
	t->loss = 0;
	CHECK(kolo_pipeline_run(e, compute, t) == 0);
	CHECK(kolo_zero_backward(t->zero, t->loss) == 0);
	for (int i = n; i-- > 0;) {
		CHECK(kolo_zero_release(t->zero, i) == 0);
		CHECK(kolo_zero_gradient(t->zero, i, t->sums[mine[i]]) == 0);
	}
	CHECK(kolo_zero_step(t->zero, &result) == 0);
	CHECK(result.updated && result.missing == 0 && result.partial == 0);
	CHECK(result.samples == (size_t)(MICROS * t->place->data_size));
	t->update++;
}

/* masters[k]: N floats, of tensors that are here. */
static void train(struct kolo_comm *comm, int stages, enum kolo_pipeline_schedule schedule,
		  int zero_stage, enum kolo_type type, float *masters)
{
	static const char *const names[TENSORS] = { "0.w", "0.b", "1.w", "1.b",
						    "2.w", "2.b", "3.w", "3.b" };
	struct kolo_zero_tensor tensors[TENSORS];
	struct kolo_pipeline_executor *e;
	struct kolo_zero_config c;
	struct kolo_pipeline *p;
	struct kolo_grid *grid;
	struct trainer t = { .type = type };
	int chunks = PARTS / stages, n = 0;

	CHECK(kolo_grid_create(comm, 1, stages, &grid) == 0);
	t.place = kolo_grid_here(grid);
	t.inputs = calloc(PARTS, sizeof(*t.inputs));
	t.passed = calloc(PARTS, sizeof(*t.passed));
	t.back = calloc(PARTS, sizeof(*t.back));
	t.errors = calloc(MICROS, sizeof(*t.errors));
	CHECK(t.inputs && t.passed && t.back && t.errors);
	for (int k = 0; k < TENSORS; k++) {
		t.sums[k] = calloc(N, sizeof(float));
		t.values[k] = calloc(N, sizeof(float));
		CHECK(t.sums[k] && t.values[k]);
		if (has(t.place, k / 2))
			tensors[n++] = (struct kolo_zero_tensor){ .name = names[k],
								  .shape = { N },
								  .ndims = 1,
								  .type = type,
								  .gradient_type = KOLO_F32 };
	}
	kolo_zero_config_init(&c);
	c.stage = zero_stage;
	c.strict = 1;
	CHECK(kolo_zero_create(kolo_grid_comm(grid, KOLO_GRID_DATA), &c, tensors, n, &t.zero) == 0);
	for (int k = 0, i = 0; k < TENSORS; k++) {
		if (!has(t.place, k / 2))
			continue;
		for (int x = 0; x < N; x++)
			t.sums[k][x] = k % 2 ? 0.1f : 1 + (float)((x * 7 + k) % 11) / 20;
		CHECK(kolo_zero_set(t.zero, i++, 0, N, t.sums[k]) == 0);
	}
	CHECK(kolo_pipeline_create(schedule, stages, chunks, MICROS, &p) == 0);
	CHECK(kolo_pipeline_executor_create(kolo_grid_comm(grid, KOLO_GRID_PIPE), p, N, KOLO_F32,
					    &e) == 0);
	for (int i = 0; i < UPDATES; i++)
		update(&t, e);
	for (int k = 0, i = 0; k < TENSORS; k++)
		if (has(t.place, k / 2))
			CHECK(kolo_zero_get(t.zero, i++, masters + k * N) == 0);
	kolo_pipeline_executor_destroy(e);
	kolo_pipeline_destroy(p);
	kolo_zero_destroy(t.zero);
	kolo_grid_destroy(grid);
	for (int k = 0; k < TENSORS; k++) {
		free(t.sums[k]);
		free(t.values[k]);
	}
	free(t.inputs);
	free(t.passed);
	free(t.back);
	free(t.errors);
}

/* The first ranks of comm, as many as there are replicas, train without a pipeline. */
static void compare(struct t_rank *t)
{
	static const struct {
		int stages;
		enum kolo_pipeline_schedule schedule;
	} ways[] = {
		{ 2, KOLO_PIPELINE_INTERLEAVED },
		{ 4, KOLO_PIPELINE_GPIPE },
		{ 4, KOLO_PIPELINE_1F1B },
		{ 4, KOLO_PIPELINE_ZB_H1 },
	};
	struct kolo_comm *comm = t_comm(t);
	float *whole = calloc(TENSORS * N, sizeof(*whole)),
	      *cut = calloc(TENSORS * N, sizeof(*cut));

	CHECK(whole && cut);
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		int stages = ways[w].stages, replicas = t->nranks / stages;
		enum kolo_type type = w % 2 ? KOLO_BF16 : KOLO_F32;
		struct kolo_comm *few;

		if (replicas == 0)
			continue;
		CHECK(kolo_comm_split(comm, t->rank < replicas ? 0 : KOLO_NOCOLOR, 0, &few) == 0);
		if (few)
			train(few, 1, KOLO_PIPELINE_INTERLEAVED, 1, type, whole);
		kolo_comm_destroy(few);
		CHECK(kolo_broadcast(comm, whole, whole, TENSORS * N, KOLO_F32, 0, NULL) == 0);
		for (int zero_stage = 0; zero_stage < 4; zero_stage++) {
			memcpy(cut, whole, TENSORS * N * sizeof(*cut));
			for (int k = 0; k < TENSORS; k++)
				if (k / 2 % stages ==
				    t->rank / replicas) /* these are trained here */
					memset(cut + k * N, 0, N * sizeof(*cut));
			train(comm, stages, ways[w].schedule, zero_stage, type, cut);
			CHECK(memcmp(whole, cut, TENSORS * N * sizeof(*cut)) == 0);
		}
	}
	free(whole);
	free(cut);
	kolo_comm_destroy(comm);
}

static void stages_train_with_the_bits_of_one_rank_per_replica(void **state)
{
	(void)state;
	t_processes(4, compare, NULL); /* 2 x 2, and 4 stages */
	if (!t_is_slow())
		t_processes(8, compare, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(stages_train_with_the_bits_of_one_rank_per_replica),
};

T_MAIN(tests)
