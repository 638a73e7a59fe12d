/* The gradients of zerotrain's model, which counts with double here: against differences of the loss, and the same bits where blocks
 * are computed again. */
#include "../tools/zerotrain/model.h"
#include "../tools/zerotrain/random.h"
#include "t.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, DIM = 24, CONTEXT = 40, BATCH = 3 }; /* more places than attention takes at a time */

/* Weights in plain arrays, and what was reported of them. */
struct arrays {
	struct sizes sizes;
	int ntensors, in_use;
	real **values, **gradients;
	int *reports;
	struct model *model;
	uint8_t text[BATCH * CONTEXT + 1];
	uint64_t keys[BATCH];
};

static int use(void *arg, int tensor, const real **out)
{
	struct arrays *a = arg;

	a->in_use++;
	*out = a->values[tensor];
	return 0;
}

static int release(void *arg, int tensor)
{
	(void)tensor;
	return --((struct arrays *)arg)->in_use < 0;
}

static int take_gradient(void *arg, int tensor, const real *gradient)
{
	struct arrays *a = arg;

	memcpy(a->gradients[tensor], gradient, tensor_shape_of(&a->sizes, tensor).n * sizeof(*gradient));
	a->reports[tensor]++;
	return 0;
}

/* Far from where training begins: there attention is nearly even, and its gradients vanish. */
static void fill_tensor(struct arrays *a, int tensor)
{
	size_t n = tensor_shape_of(&a->sizes, tensor).n;
	float *start = malloc(n * sizeof(*start));

	tensor_init(&a->sizes, tensor, 0, n, start);
	for (size_t i = 0; i < n; i++)
		a->values[tensor][i] =
			8 * (double)start[i] + 0.3 * draw_uniform(make_key(1, (uint64_t)tensor), i);
	free(start);
}

static struct arrays *make_arrays(int segment, double dropout)
{
	struct arrays *a = calloc(1, sizeof(*a));

	a->sizes = (struct sizes){
		.layers = LAYERS,
		.dim = DIM,
		.heads = 2,
		.context = CONTEXT,
		.batch = BATCH,
		.segment = segment,
		.dropout = dropout,
		.seed = 3,
	};
	a->ntensors = tensor_count(&a->sizes);
	a->values = calloc((size_t)a->ntensors, sizeof(*a->values));
	a->gradients = calloc((size_t)a->ntensors, sizeof(*a->gradients));
	a->reports = calloc((size_t)a->ntensors, sizeof(*a->reports));
	for (int t = 0; t < a->ntensors; t++) {
		a->values[t] = calloc(tensor_shape_of(&a->sizes, t).n, sizeof(real));
		a->gradients[t] = calloc(tensor_shape_of(&a->sizes, t).n, sizeof(real));
		fill_tensor(a, t);
	}
	a->model = model_create(&a->sizes, &(struct weights){ use, release, take_gradient, a });
	CHECK(a->model != NULL);
	for (size_t i = 0; i < sizeof(a->text); i++)
		a->text[i] = (uint8_t)(97 + draw_word(5, (uint32_t)i) % 7);
	for (int b = 0; b < BATCH; b++)
		a->keys[b] = make_key(9, (uint64_t)b);
	return a;
}

static void free_arrays(struct arrays *a)
{
	for (int t = 0; t < a->ntensors; t++) {
		free(a->values[t]);
		free(a->gradients[t]);
	}
	model_destroy(a->model);
	free(a->values);
	free(a->gradients);
	free(a->reports);
	free(a);
}

static double forward(struct arrays *a, double scale)
{
	struct batch batch = { BATCH, CONTEXT, a->text, a->text + 1, a->keys };
	double loss;

	CHECK(model_forward(a->model, &batch, scale, &loss) == 0 && a->in_use == 0);
	return loss;
}

static void backward(struct arrays *a)
{
	CHECK(model_backward(a->model) == 0 && a->in_use == 0);
	for (int t = 0; t < a->ntensors; t++)
		CHECK(a->reports[t] == 1);
}

/* The difference of the loss by one element, from two places on both sides: two of them alone would be 1e-4 off for embeddings, where
 * the loss is bent most. */
static double slope(struct arrays *a, int tensor, size_t i)
{
	const double h = 1e-5;
	double start = a->values[tensor][i], loss[5];

	for (int k = 0; k < 5; k++) {
		a->values[tensor][i] = start + (k - 2) * h;
		loss[k] = k == 2 ? 0 : forward(a, 1);
	}
	a->values[tensor][i] = start;
	return (8 * (loss[3] - loss[1]) - (loss[4] - loss[0])) / (12 * h);
}

/* Of each tensor the norm of the error over that of the gradient, at some elements, those of embeddings that occur. */
static void check_slopes(struct arrays *a)
{
	const size_t samples = t_is_slow() ? 3 : 12;
	double worst = 0;

	forward(a, 1);
	backward(a);
	for (int t = 0; t < a->ntensors; t++) {
		size_t n = tensor_shape_of(&a->sizes, t).n;
		double error = 0, size = 0;

		for (size_t k = 0; k < samples; k++) {
			size_t i = t == BYTES ? (97 + k % 7) * DIM + k % DIM : draw_word(7, (uint32_t)k) % n;
			double d = slope(a, t, i), g = a->gradients[t][i];

			error += (d - g) * (d - g);
			size += g * g;
		}
		worst = fmax(worst, sqrt(error / size));
		if (!(error <= 1e-12 * size))
			printf("# %s: %g\n", tensor_shape_of(&a->sizes, t).name, sqrt(error / size));
		CHECK(error <= 1e-12 * size);
	}
	printf("# gradients and differences: %.2g apart, relative to the gradient\n", worst);
}

static void gradients_are_the_slopes_of_the_loss(void **state)
{
	struct arrays *a = make_arrays(LAYERS, 0);

	(void)state;
	check_slopes(a);
	free_arrays(a);
}

static void gradients_with_dropout_are_the_slopes_too(void **state)
{
	struct arrays *a = make_arrays(LAYERS, 0.2);

	(void)state;
	check_slopes(a);
	free_arrays(a);
}

static void a_scaled_loss_has_scaled_gradients(void **state)
{
	struct arrays *a = make_arrays(LAYERS, 0), *b = make_arrays(LAYERS, 0);

	(void)state;
	CHECK(forward(a, 1) == forward(b, 1024));
	backward(a);
	backward(b);
	for (int t = 0; t < a->ntensors; t++)
		for (size_t i = 0; i < tensor_shape_of(&a->sizes, t).n; i++)
			CHECK(b->gradients[t][i] == 1024 * a->gradients[t][i]);
	free_arrays(a);
	free_arrays(b);
}

static void what_is_computed_again_has_the_same_bits_in_less_memory(void **state)
{
	struct arrays *a = make_arrays(LAYERS, 0.1);
	double loss = forward(a, 1);

	(void)state;
	backward(a);
	for (int segment = 1; segment < LAYERS; segment++) {
		struct arrays *b = make_arrays(segment, 0.1);

		CHECK(forward(b, 1) == loss);
		backward(b);
		for (int t = 0; t < a->ntensors; t++)
			CHECK(memcmp(a->gradients[t], b->gradients[t],
				     tensor_shape_of(&a->sizes, t).n * sizeof(real)) == 0);
		CHECK(model_memory(b->model) < model_memory(a->model));
		free_arrays(b);
	}
	free_arrays(a);
}

/* Each with random logits of its own, far apart; the last place of a sequence is predicted from all before it. */
static void predictions_are_those_of_training(void **state)
{
	struct arrays *a = make_arrays(LAYERS, 0);
	struct batch batch = { 1, CONTEXT, a->text, a->text + 1, NULL };
	real logits[VALUES];
	double all = 0, loss, sum = 0;

	(void)state;
	for (int length = 1; length <= CONTEXT; length++) {
		CHECK(model_predict(a->model, a->text, length, logits) == 0);
		sum = 0;
		for (int i = 0; i < VALUES; i++)
			sum += exp(logits[i]);
		all += log(sum) - logits[a->text[length]];
	}
	CHECK(model_forward(a->model, &batch, 1, &loss) == 0);
	CHECK(fabs(all / CONTEXT - loss) < 1e-12 * loss);
	free_arrays(a);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(gradients_are_the_slopes_of_the_loss),
	cmocka_unit_test(gradients_with_dropout_are_the_slopes_too),
	cmocka_unit_test(a_scaled_loss_has_scaled_gradients),
	cmocka_unit_test(what_is_computed_again_has_the_same_bits_in_less_memory),
	cmocka_unit_test(predictions_are_those_of_training),
};
T_MAIN(tests)
