/* zerotrain's model, which counts with double here: gradients against differences of the loss, and
 * the same bits where blocks are computed again. Its text: what is read when. */
#include "tests/lib/t.h"
#include "tests/tools/divided.h"
#include "tests/tools/gpt.h"
#include "tests/tools/growth.h"
#include "tools/zerotrain/data/data.h"
#include "tools/zerotrain/math/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Gradients ------------------------------------------------------------------------------- */

static double forward(struct gpt *g, double scale)
{
	double loss = gpt_forward(g, 0, scale);

	CHECK(loss == loss);
	return loss;
}

/* The difference of the loss by one element, from two places on both sides: two of them alone would
 * be 1e-4 off for embeddings, where the loss is bent most. */
static double slope(struct gpt *a, int tensor, size_t i)
{
	const double h = 3e-5;
	double start = a->values[tensor][i], loss[5];

	for (int k = 0; k < 5; k++) {
		a->values[tensor][i] = start + (k - 2) * h;
		loss[k] = k == 2 ? 0 : forward(a, 1);
	}
	a->values[tensor][i] = start;
	return (8 * (loss[3] - loss[1]) - (loss[4] - loss[0])) / (12 * h);
}

/* What rounding the loss makes of a difference; some gradients are as small. */
#define ROUNDING 3e-10

/* Of each tensor the norm of the error over that of the gradient, at some elements, those of
 * embeddings that occur. */
static void check_slopes(struct gpt *a)
{
	const size_t samples = t_is_slow() ? 3 : 12;
	double worst = 0;

	forward(a, 1);
	CHECK(gpt_backward(a));
	for (int t = 0; t < a->ntensors; t++) {
		size_t n = tensor_shape_of(&a->sizes, t).n;
		double error = 0, size = 0;

		if (!tensor_is_there(&a->sizes, t))
			continue;

		for (size_t k = 0; k < samples; k++) {
			size_t i = t == BYTES ? (97 + k % 7) * GPT_DIM + k % GPT_DIM
					      : draw_word(7, (uint32_t)k) % n;
			double d = slope(a, t, i), g = a->gradients[t][i];

			error += (d - g) * (d - g);
			size += g * g;
		}
		worst = fmax(worst, sqrt(error / size));
		if (!(error <= 1e-12 * size + ROUNDING * ROUNDING))
			printf("# %s: %g\n", tensor_shape_of(&a->sizes, t).name,
			       sqrt(error / size));
		CHECK(error <= 1e-12 * size + ROUNDING * ROUNDING);
	}
	printf("# gradients and differences: %.2g apart, relative to the gradient\n", worst);
}

static void gradients_are_the_slopes_of_the_loss(void **state)
{
	struct gpt *a = gpt_open(GPT_LAYERS, 0, 0);

	(void)state;
	check_slopes(a);
	gpt_close(a);
}

static void gradients_of_a_llama_are_the_slopes_too(void **state)
{
	(void)state;
	for (int untied = 0; untied < 2; untied++) {
		struct gpt *a = gpt_open_llama(GPT_LAYERS, untied);

		check_slopes(a);
		gpt_close(a);
	}
}

static void gradients_in_segments_are_the_slopes_too(void **state)
{
	struct gpt *a = gpt_open(GPT_LAYERS, 0, 2);

	(void)state;
	check_slopes(a);
	gpt_close(a);
}

static void gradients_with_dropout_are_the_slopes_too(void **state)
{
	struct gpt *a = gpt_open(GPT_LAYERS, 0.2, 0);

	(void)state;
	check_slopes(a);
	gpt_close(a);
}

static void divide(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);

	for (int k = 0; k < 4; k++) {
		struct divided d;

		CHECK(divided_run(comm, k % 2 ? LLAMA : GPT2, k / 2 ? ULYSSES : RING, &d));
		CHECK(d.loss < 1e-12 && d.gradient < 1e-11);
	}
	kolo_comm_destroy(comm);
}

static void divided_sequences_have_the_gradients_of_whole_ones(void **state)
{
	(void)state;
	t_processes(2, divide, NULL);
	t_processes(4, divide, NULL);
}

/* The sum of losses of one document, alone, without tokens that do not count. */
static double sum_alone(struct gpt *a, int first, int n)
{
	struct batch alone = { .count = 1,
			       .length = n,
			       .in = a->text + first,
			       .targets = a->text + first + 1,
			       .counted = a->counted + first };
	double loss, counted = 0;

	CHECK(model_forward(a->model, 0, 0, &alone, 1, NULL, NULL, &loss) == 0);
	for (int i = 0; i < n; i++)
		counted += alone.counted[i];
	return loss * counted;
}

static void documents_do_not_see_each_other(void **state)
{
	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		struct gpt *a =
			kind ? gpt_open_llama(GPT_LAYERS, false) : gpt_open(GPT_LAYERS, 0, 0);
		double loss, sum = 0, counted = 0;
		int n;

		gpt_divide(a);
		loss = forward(a, 1);
		for (int i = 0; i < GPT_BATCH * GPT_CONTEXT; i += n) {
			for (n = 1; (i + n) % GPT_CONTEXT && a->begins[i + n] == a->begins[i]; n++)
				;
			sum += sum_alone(a, i, n);
		}
		for (int i = 0; i < GPT_BATCH * GPT_CONTEXT; i++)
			counted += a->counted[i];
		CHECK(fabs(loss - sum / counted) < 1e-12);
		check_slopes(a);
		gpt_close(a);
	}
}

static void a_scaled_loss_has_scaled_gradients(void **state)
{
	struct gpt *a = gpt_open(GPT_LAYERS, 0, 0), *b = gpt_open(GPT_LAYERS, 0, 0);

	(void)state;
	CHECK(forward(a, 1) == forward(b, 1024));
	CHECK(gpt_backward(a));
	CHECK(gpt_backward(b));
	for (int t = 0; t < a->ntensors; t++)
		for (size_t i = 0; i < tensor_shape_of(&a->sizes, t).n; i++)
			CHECK(b->gradients[t][i] == 1024 * a->gradients[t][i]);
	gpt_close(a);
	gpt_close(b);
}

static void what_is_computed_again_has_the_same_bits_in_less_memory(void **state)
{
	struct gpt *a = gpt_open(GPT_LAYERS, 0.1, 0);
	double loss = forward(a, 1);

	(void)state;
	CHECK(gpt_backward(a));
	for (int segment = 1; segment < GPT_LAYERS; segment++) {
		struct gpt *b = gpt_open(segment, 0.1, 0);

		CHECK(forward(b, 1) == loss);
		CHECK(gpt_backward(b));
		for (int t = 0; t < a->ntensors; t++)
			CHECK(memcmp(a->gradients[t], b->gradients[t],
				     tensor_shape_of(&a->sizes, t).n * sizeof(real)) == 0);
		CHECK(model_memory(b->model) < model_memory(a->model));
		gpt_close(b);
	}
	gpt_close(a);
}

/* The bits of the whole model; of BYTES two sums are added up at the end. */
static void parts_and_halves_have_the_gradients_of_the_whole(void **state)
{
	struct gpt *whole = gpt_open(GPT_LAYERS, 0.1, 0), *parts = gpt_open_parts();
	double loss = 0, apart = gpt_run_parts(parts);
	real *sum;

	(void)state;
	sum = calloc((size_t)whole->ntensors * 4 * GPT_DIM * GPT_DIM + 2 * GPT_VALUES * GPT_DIM,
		     sizeof(*sum));
	for (int number = 0; number < 2; number++) {
		real *at = sum;

		loss += gpt_forward(whole, number, 1);
		CHECK(gpt_backward(whole));
		for (int t = 0; t < whole->ntensors; t++)
			for (size_t i = 0; i < tensor_shape_of(&whole->sizes, t).n; i++)
				*at++ += whole->gradients[t][i];
	}
	CHECK(loss == apart);
	for (int t = 0, at = 0; t < whole->ntensors; t++)
		for (size_t i = 0; i < tensor_shape_of(&whole->sizes, t).n; i++, at++)
			CHECK(t == BYTES ? fabs(parts->gradients[t][i] - sum[at]) <= 1e-14
					 : parts->gradients[t][i] == sum[at]);
	free(sum);
	gpt_close(whole);
	gpt_close(parts);
}

/* The loss of a sequence is the mean over its places, each predicted from those before it. */
static void predictions_are_those_of_training(void **state)
{
	struct gpt *a = gpt_open(GPT_LAYERS, 0, 0);
	struct batch batch = {
		.count = 1, .length = GPT_CONTEXT, .in = a->text, .targets = a->text + 1
	};
	double all = 0, loss, sum = 0;

	(void)state;
	for (int length = 1; length <= GPT_CONTEXT; length++) {
		struct batch some = { .count = 1, .length = length, .in = a->text };
		const real *logits;

		CHECK(model_forward(a->model, 0, 0, &some, 1, NULL, NULL, &loss) == 0);
		logits = model_logits(a->model, 0, 0, (size_t)length - 1);
		sum = 0;
		for (int i = 0; i < GPT_VALUES; i++)
			sum += exp(logits[i]);
		all += log(sum) - logits[a->text[length]];
	}
	CHECK(model_forward(a->model, 0, 0, &batch, 1, NULL, NULL, &loss) == 0);
	CHECK(fabs(all / GPT_CONTEXT - loss) < 1e-12 * loss);
	gpt_close(a);
}

static void growing_texts_have_the_logits_of_batches(void **state)
{
	struct gpt *a = gpt_open_growing(NULL, GPT2, 0, GROWING, false);
	struct growth *grown = calloc(1, sizeof(*grown));
	double apart;
	bool same;

	(void)state;
	CHECK(grown && growth_run(a, grown));
	apart = growth_compare(a, grown, &same);
	CHECK(apart >= 0 && apart < 1e-12);
	free(grown);
	gpt_close(a);
}

/* ---- Text ------------------------------------------------------------------------------------ */

static void write_text(const char *path, size_t len)
{
	FILE *f = fopen(path, "w");

	CHECK(f != NULL);
	for (size_t i = 0; i < len; i++)
		fputc((int)draw_word(11, (uint32_t)i) % 256, f);
	fclose(f);
}

/* How often each byte is read in an epoch, all of which must be in the training part; windows of
 * one epoch don't overlap. */
static void check_epoch(const struct data *d, uint64_t epoch)
{
	uint8_t *read = calloc(d->len, 1);

	for (uint64_t k = epoch * d->windows; k < (epoch + 1) * d->windows; k++) {
		size_t at = data_sample(d, k);

		CHECK(at + d->context < d->ntrain);
		for (size_t i = 0; i < d->context; i++)
			CHECK(read[at + i]++ == 0);
	}
	free(read);
}

static struct source source_of(const char *path, uint64_t seed)
{
	return (struct source){
		.path = path, .width = 1, .values = 256, .context = 8, .seed = seed
	};
}

static void an_epoch_reads_every_window_once(void **state)
{
	static const size_t lengths[] = { 25, 26, 80, 1000, 4099 };
	char path[] = "/tmp/zerotrain-text-XXXXXX";

	(void)state;
	close(mkstemp(path));
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		struct data d = { 0 };

		const struct source source = source_of(path, 1);

		write_text(path, lengths[i]);
		CHECK(data_open(&source, &d) == 0 && d.windows > 0 && d.validation > 0);
		for (uint64_t epoch = 0; epoch < 20; epoch++)
			check_epoch(&d, epoch);
		for (uint64_t w = 0; w < d.validation; w++) {
			size_t at = data_validation(&d, w);

			CHECK(at >= d.ntrain && at + d.context < d.len);
		}
		data_close(&d);
	}
	unlink(path);
}

static void another_seed_reads_in_another_order(void **state)
{
	char path[] = "/tmp/zerotrain-text-XXXXXX";
	struct data d[3] = { 0 };
	int same = 0;

	(void)state;
	close(mkstemp(path));
	write_text(path, 4099);
	for (int i = 0; i < 3; i++) {
		const struct source source = source_of(path, 1 + (uint64_t)(i == 2));

		CHECK(data_open(&source, &d[i]) == 0);
	}
	CHECK(data_fingerprint(&d[0]) == data_fingerprint(&d[2]));
	for (uint64_t k = 0; k < 2000; k++) {
		CHECK(data_sample(&d[0], k) == data_sample(&d[1], k));
		same += data_sample(&d[0], k) == data_sample(&d[2], k);
	}
	CHECK(same < 50);
	for (int i = 0; i < 3; i++)
		data_close(&d[i]);
	unlink(path);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(gradients_are_the_slopes_of_the_loss),
	cmocka_unit_test(gradients_of_a_llama_are_the_slopes_too),
	cmocka_unit_test(gradients_in_segments_are_the_slopes_too),
	cmocka_unit_test(gradients_with_dropout_are_the_slopes_too),
	cmocka_unit_test(parts_and_halves_have_the_gradients_of_the_whole),
	cmocka_unit_test(divided_sequences_have_the_gradients_of_whole_ones),
	cmocka_unit_test(documents_do_not_see_each_other),
	cmocka_unit_test(a_scaled_loss_has_scaled_gradients),
	cmocka_unit_test(what_is_computed_again_has_the_same_bits_in_less_memory),
	cmocka_unit_test(predictions_are_those_of_training),
	cmocka_unit_test(growing_texts_have_the_logits_of_batches),
	cmocka_unit_test(an_epoch_reads_every_window_once),
	cmocka_unit_test(another_seed_reads_in_another_order),
};
T_MAIN(tests)
