/* See gpt.h. */
#include "tests/tools/gpt.h"
#include "tools/zerotrain/model/random.h"

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

static void fill_tensor(struct gpt *g, int tensor)
{
	size_t n = tensor_shape_of(&g->sizes, tensor).n;
	float *start = malloc(n * sizeof(*start));

	tensor_init(&g->sizes, tensor, 0, n, start);
	for (size_t i = 0; i < n; i++)
		g->values[tensor][i] =
			6 * start[i] +
			(float)(0.1 * draw_uniform(make_key(1, (uint64_t)tensor), i));
	free(start);
}

struct gpt *gpt_open(int segment, double dropout)
{
	struct gpt *g = calloc(1, sizeof(*g));
	struct weights weights = { use_tensor, release_tensor, take_gradient, g, false };
	const struct part all = { 0, GPT_LAYERS, 1 };

	g->sizes = (struct sizes){ .layers = GPT_LAYERS,
				   .dim = GPT_DIM,
				   .heads = GPT_HEADS,
				   .context = GPT_CONTEXT,
				   .batch = GPT_BATCH,
				   .segment = segment,
				   .dropout = dropout,
				   .seed = 3 };
	g->ntensors = tensor_count(&g->sizes);
	g->values = calloc((size_t)g->ntensors, sizeof(*g->values));
	g->gradients = calloc((size_t)g->ntensors, sizeof(*g->gradients));
	g->reports = calloc((size_t)g->ntensors, sizeof(*g->reports));
	for (int t = 0; t < g->ntensors; t++) {
		g->values[t] = calloc(tensor_shape_of(&g->sizes, t).n, sizeof(real));
		g->gradients[t] = calloc(tensor_shape_of(&g->sizes, t).n, sizeof(real));
		fill_tensor(g, t);
	}
	if (model_group(NULL, false, 0, &g->group) == 0)
		g->model = model_create(&g->sizes, &all, 1, &weights, g->group, NULL);
	for (size_t i = 0; i < sizeof(g->text); i++)
		g->text[i] = (uint8_t)(97 + draw_word(5, (uint32_t)i) % 7);
	for (int b = 0; b < GPT_BATCH; b++)
		g->keys[b] = make_key(9, (uint64_t)b);
	return g;
}

void gpt_close(struct gpt *g)
{
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

double gpt_forward(struct gpt *g, double scale)
{
	struct batch batch = { GPT_BATCH, GPT_CONTEXT, g->text, g->text + 1, g->keys };
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
		good = good && g->reports[t] == 1;
	return good;
}
