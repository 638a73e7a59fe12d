/* See gpt.h. */
#include "tests/tools/gpt.h"
#include "tools/zerotrain/math/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int use_tensor(void *arg, int tensor, const real **out)
{
	struct gpt *g = arg;

	g->in_use++;
	*out = g->values[tensor];
	return 0;
}

static int release_tensor(void *arg, int tensor)
{
	struct gpt *g = arg;

	(void)tensor;
	g->in_use--;
	return 0;
}

static int take_gradient(void *arg, int tensor, const real *gradient)
{
	struct gpt *g = arg;

	memcpy(g->gradients[tensor], gradient,
	       tensor_shape_of(&g->sizes, tensor).n * sizeof(*gradient));
	g->reports[tensor]++;
	return 0;
}

static void fill_tensor(struct gpt *g, int tensor, float factor)
{
	size_t n = tensor_shape_of(&g->sizes, tensor).n;
	float *start = malloc(n * sizeof(*start));

	tensor_init(&g->sizes, tensor, 0, n, start);
	for (size_t i = 0; i < n; i++)
		g->values[tensor][i] =
			factor * start[i] +
			(factor > 1 ? (float)(0.1 * draw_uniform(make_key(1, (uint64_t)tensor),
								 whole_index(&g->sizes, tensor, i)))
				    : 0);
	free(start);
}

enum { FAR = 6 };

static int add_gradient(void *arg, int tensor, const real *gradient)
{
	struct gpt *g = arg;
	size_t n = tensor_shape_of(&g->sizes, tensor == g->ntensors ? BYTES : tensor).n;

	for (size_t i = 0; i < n; i++)
		g->gradients[tensor][i] += gradient[i];
	return 0;
}

/* factor: of the values that training begins with. */
static struct gpt *open_gpt(struct kolo_comm *group, struct kolo_comm *context, struct sizes sizes,
			    float factor, const struct part *parts, int nparts)
{
	struct gpt *g = calloc(1, sizeof(*g));
	bool apart = nparts > 1;
	struct weights weights = { use_tensor, release_tensor, apart ? add_gradient : take_gradient,
				   g, apart };

	g->sizes = sizes;
	g->ntensors = tensor_count(&g->sizes);
	g->values = calloc((size_t)g->ntensors, sizeof(*g->values));
	g->gradients = calloc((size_t)g->ntensors + 1, sizeof(*g->gradients));
	g->reports = calloc((size_t)g->ntensors, sizeof(*g->reports));
	for (int t = 0; t < g->ntensors; t++) {
		g->values[t] = calloc(tensor_shape_of(&g->sizes, t).n, sizeof(real));
		g->gradients[t] = calloc(tensor_shape_of(&g->sizes, t).n, sizeof(real));
		fill_tensor(g, t, factor);
	}
	g->gradients[g->ntensors] = calloc(tensor_shape_of(&sizes, BYTES).n, sizeof(real));
	if (model_group(group, false, sizes.segments, &g->group) == 0)
		g->model = model_create(&g->sizes, parts, nparts, &weights,
					(struct groups){ g->group, context }, NULL);
	for (size_t i = 0; i < sizeof(g->text) / sizeof(g->text[0]); i++)
		g->text[i] = (token)(97 + draw_word(5, (uint32_t)i) % 7);
	for (int b = 0; b < GPT_BATCH; b++)
		g->keys[b] = make_key(9, (uint64_t)b);
	return g;
}

static const struct sizes usual = {
	.layers = GPT_LAYERS,
	.dim = GPT_DIM,
	.heads = GPT_HEADS,
	.context = GPT_CONTEXT,
	.values = GPT_VALUES,
	.batch = GPT_BATCH,
	.segment = GPT_LAYERS,
	.seed = 3,
};

struct gpt *gpt_open(int segment, double dropout, int segments)
{
	const struct part all = { 0, GPT_LAYERS, 1 };
	struct sizes sizes = usual;

	sizes.segment = segment;
	sizes.dropout = dropout;
	sizes.segments = segments;
	return open_gpt(NULL, NULL, sizes, FAR, &all, 1);
}

struct gpt *gpt_open_llama(int segment, bool untied)
{
	const struct part all = { 0, GPT_LAYERS, 1 };
	struct sizes sizes = usual;

	sizes.kind = LLAMA;
	sizes.kv_heads = 1;
	sizes.inner = 40;
	sizes.untied = untied;
	sizes.segment = segment;
	return open_gpt(NULL, NULL, sizes, FAR, &all, 1);
}

struct gpt *gpt_open_spread(struct kolo_comm *comm, enum kind kind, enum spread spread, bool near)
{
	const struct part all = { 0, GPT_LAYERS, 1 };
	struct sizes sizes = usual;

	sizes.kind = kind;
	sizes.dim = GPT_WIDE;
	sizes.heads = 8;
	sizes.kv_heads = kind == LLAMA ? 4 : 8;
	sizes.context = GPT_LONG;
	sizes.batch = 2;
	sizes.dropout = 0.1;
	sizes.spread = spread;
	if (comm) {
		sizes.context_size = kolo_comm_nranks(comm);
		sizes.context_rank = kolo_comm_rank(comm);
	}
	return open_gpt(NULL, comm, sizes, near ? 1 : FAR, &all, 1);
}

struct gpt *gpt_open_growing(struct kolo_comm *group, enum kind kind, int segments, int texts,
			     bool near)
{
	const struct part parts[] = { { 0, 1, 1 }, { 1, GPT_LAYERS, 1 } };
	struct sizes sizes = usual;

	sizes.dim = GPT_WIDE;
	sizes.kind = kind;
	sizes.heads = 8;
	sizes.kv_heads = kind == LLAMA ? 4 : 8;
	sizes.context = GPT_LONG;
	sizes.segment = 2;
	sizes.segments = segments;
	sizes.texts = texts;
	if (group) {
		sizes.tensor_size = kolo_comm_nranks(group);
		sizes.tensor_rank = kolo_comm_rank(group);
	}
	return open_gpt(group, NULL, sizes, near ? 1 : FAR, parts, 2);
}

struct gpt *gpt_open_parts(void)
{
	const struct part parts[] = { { 0, 1, 2 }, { 1, GPT_LAYERS, 2 } };
	struct sizes sizes = usual;

	sizes.halves = true;
	sizes.dropout = 0.1;
	return open_gpt(NULL, NULL, sizes, FAR, parts, 2);
}

void gpt_close(struct gpt *g)
{
	free(g->gradients[g->ntensors]);
	for (int t = 0; t < g->ntensors; t++) {
		free(g->values[t]);
		free(g->gradients[t]);
	}
	model_destroy(g->model);
	kolo_tp_destroy(g->group);
	free(g->values);
	free(g->gradients);
	free(g->reports);
	free(g);
}

/* Sequences of GPT_LONG tokens that overlap, as they do in the text. */
static struct batch part_of(struct gpt *g, int number)
{
	int ranks = g->sizes.context_size > 1 ? g->sizes.context_size : 1, n = GPT_LONG / ranks;

	for (int b = 0; b < g->sizes.batch; b++)
		for (int t = 0; t < n; t++) {
			size_t place = part_place(&g->sizes, (size_t)n, (size_t)t);
			const token *at = g->text + number + b * GPT_CONTEXT + place;

			g->part[0][b * n + t] = at[0];
			g->part[1][b * n + t] = at[1];
		}
	return (struct batch){ .count = g->sizes.batch,
			       .length = n,
			       .in = g->part[0],
			       .targets = g->part[1],
			       .keys = g->keys };
}

static struct batch batch_of(struct gpt *g, int number)
{
	if (g->sizes.context == GPT_LONG)
		return part_of(g, number);
	return (struct batch){ .count = GPT_BATCH,
			       .length = GPT_CONTEXT,
			       .in = g->text + number,
			       .targets = g->text + number + 1,
			       .keys = g->keys,
			       .counted = g->documents ? g->counted : NULL,
			       .begins = g->documents ? g->begins : NULL };
}

void gpt_divide(struct gpt *g)
{
	int begin = 0;

	g->documents = true;
	for (int i = 0; i < GPT_BATCH * GPT_CONTEXT; i++) {
		if (i % GPT_CONTEXT == 0 || draw_word(11, (uint32_t)i) % 9 == 0)
			begin = i % GPT_CONTEXT;
		g->begins[i] = begin;
		g->counted[i] = draw_word(12, (uint32_t)i) % 3 > 0;
	}
}

double gpt_forward(struct gpt *g, int number, double scale)
{
	struct batch batch = batch_of(g, number);
	double loss;

	return model_forward(g->model, 0, 0, &batch, scale, NULL, NULL, &loss) == 0 &&
			       g->in_use == 0
		       ? loss
		       : NAN;
}

bool gpt_backward(struct gpt *g)
{
	bool good;

	memset(g->reports, 0, (size_t)g->ntensors * sizeof(*g->reports));
	good = model_backward(g->model, 0, 0, BOTH, NULL, NULL) == 0 && g->in_use == 0;
	for (int t = 0; t < g->ntensors; t++)
		good = good && g->reports[t] == tensor_is_there(&g->sizes, t);
	return good;
}

double gpt_run_parts(struct gpt *g)
{
	static real middle[2][GPT_BATCH * GPT_CONTEXT * GPT_DIM],
		back[2][GPT_BATCH * GPT_CONTEXT * GPT_DIM];
	double loss[2] = { 0 }, none;
	struct model *m = g->model;
	bool good = true;

	for (int b = 0; b < 2; b++) {
		struct batch batch = batch_of(g, b);

		good = good && model_forward(m, 0, b, &batch, 1, NULL, middle[b], &none) == 0;
	}
	for (int b = 0; b < 2; b++) {
		struct batch batch = batch_of(g, b);

		good = good &&
		       model_forward(m, 1, 1 - b, &batch, 1, middle[b], NULL, &loss[b]) == 0 &&
		       model_backward(m, 1, 1 - b, INPUTS, NULL, back[b]) == 0;
	}
	for (int b = 0; b < 2; b++)
		good = good && model_backward(m, 1, 1 - b, WEIGHTS, NULL, NULL) == 0;
	for (int b = 0; b < 2; b++)
		good = good && model_backward(m, 0, b, INPUTS, back[b], NULL) == 0;
	for (int b = 0; b < 2; b++)
		good = good && model_backward(m, 0, b, WEIGHTS, NULL, NULL) == 0;
	good = good && g->in_use == 0;
	for (size_t i = 0; i < tensor_shape_of(&g->sizes, BYTES).n; i++)
		g->gradients[BYTES][i] += g->gradients[g->ntensors][i];
	return good ? loss[0] + loss[1] : NAN;
}
