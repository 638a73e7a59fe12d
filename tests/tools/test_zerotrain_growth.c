/* Texts that grow place by place (model_extend) have the logits of whole batches: to rounding, and
 * with segments to the bit, on any number of ranks. */
#include "tests/lib/t.h"
#include "tests/tools/growth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Weights of this model make differences some hundred times larger. */
#define CLOSE 3e-5

static void grow_alone(enum kind kind, int segments)
{
	struct gpt *g = gpt_open_growing(NULL, kind, segments, GROWING, false);
	struct growth *a = calloc(2, sizeof(*a));
	double apart;
	bool same;

	CHECK(a && g->model);
	CHECK(model_cache(g->model) == 2 * GPT_LAYERS * GROWING * GPT_LONG * GPT_WIDE *
					       sizeof(real) / (kind == LLAMA ? 2 : 1));
	/* What was kept of the first texts is not seen by the next ones. */
	for (int k = 0; k < 2; k++) {
		CHECK(growth_run(g, &a[k]));
		apart = growth_compare(g, &a[k], &same);
		printf("# logits are %.2g apart, relative to the largest\n", apart);
		CHECK(apart >= 0 && apart < CLOSE && (!segments || same));
	}
	CHECK(memcmp(&a[0], &a[1], sizeof(*a)) == 0);
	free(a);
	gpt_close(g);
}

static void logits_of_growing_texts_are_those_of_batches(void **state)
{
	(void)state;
	grow_alone(GPT2, 0);
	grow_alone(LLAMA, 0);
}

static double largest(const struct growth *a)
{
	double most = 0;

	for (int t = 0; t < GROWING * GPT_LONG; t++)
		for (int v = 0; v < GPT_VALUES; v++)
			most = fmax(most, fabs((double)a->logits[t / GPT_LONG][t % GPT_LONG][v]));
	return most;
}

/* With the weights that training begins with rounding is not made larger. */
static void they_are_within_1e_5_of_these(void **state)
{
	struct growth *a = calloc(1, sizeof(*a));
	double apart;
	bool same;

	(void)state;
	for (int kind = GPT2; kind <= LLAMA; kind++) {
		struct gpt *g = gpt_open_growing(NULL, (enum kind)kind, 0, GROWING, true);

		CHECK(growth_run(g, a));
		apart = growth_compare(g, a, &same) * largest(a);
		printf("# logits are %.2g apart\n", apart);
		CHECK(apart >= 0 && apart < 1e-5);
		gpt_close(g);
	}
	free(a);
}

static void with_segments_they_have_the_same_bits(void **state)
{
	(void)state;
	grow_alone(GPT2, 4);
	grow_alone(LLAMA, 4);
}

/* This rank's part of the logits, beside those of one rank. */
static void compare_part(const struct t_rank *t, const struct growth *part,
			 const struct growth *whole, size_t values, bool exactly)
{
	double largest = 0, worst = 0;

	for (int row = 0; row < GROWING * GPT_LONG; row++) {
		const real *want = whole->logits[row / GPT_LONG][row % GPT_LONG];
		const real *got = part->logits[row / GPT_LONG][row % GPT_LONG];

		want += (size_t)t->rank * values;
		CHECK(!exactly || memcmp(want, got, values * sizeof(*got)) == 0);
		for (size_t v = 0; v < values; v++) {
			worst = fmax(worst, fabs((double)(want[v] - got[v])));
			largest = fmax(largest, fabs((double)want[v]));
		}
	}
	CHECK(worst < CLOSE * largest);
}

static void grow_in_group(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct growth *part = calloc(1, sizeof(*part)), *whole = calloc(1, sizeof(*whole));
	bool same;

	CHECK(part && whole);
	for (int k = t_is_slow() ? 3 : 0; k < 4; k++) {
		enum kind kind = k % 2 ? LLAMA : GPT2;
		int segments = k / 2 * 4;
		struct gpt *g = gpt_open_growing(comm, kind, segments, GROWING, false),
			   *alone = gpt_open_growing(NULL, kind, segments, GROWING, false);
		double apart;

		CHECK(growth_run(g, part) && growth_run(alone, whole));
		apart = growth_compare(g, part, &same);
		CHECK(apart >= 0 && apart < CLOSE && (!segments || same));
		compare_part(t, part, whole, growth_values(g), segments > 0);
		gpt_close(g);
		gpt_close(alone);
	}
	free(part);
	free(whole);
	kolo_comm_destroy(comm);
}

static void a_tensor_group_has_the_logits_of_one_rank(void **state)
{
	(void)state;
	t_processes(2, grow_in_group, NULL);
	t_processes(4, grow_in_group, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(logits_of_growing_texts_are_those_of_batches),
	cmocka_unit_test(they_are_within_1e_5_of_these),
	cmocka_unit_test(with_segments_they_have_the_same_bits),
	cmocka_unit_test(a_tensor_group_has_the_logits_of_one_rank),
};

T_MAIN(tests)
