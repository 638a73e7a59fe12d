/* Prints a model's text, weights, loss and gradients as JSON: compiled with float and with double
 * for test_zerotrain.py, which compares them with each other and with torch's. An argument: the
 * number of segments. */
#include "tests/tools/gpt.h"

#include <stdio.h>
#include <stdlib.h>

static void print_numbers(const char *name, const real *x, size_t n)
{
	printf("\"%s\": [", name);
	for (size_t i = 0; i < n; i++)
		printf("%s%.17g", i ? ", " : "", (double)x[i]);
	printf("]");
}

int main(int argc, char **argv)
{
	struct gpt *g = gpt_open(GPT_LAYERS, 0, argc > 1 ? atoi(argv[1]) : 0);
	double loss = gpt_forward(g, 0, 1);
	bool good = gpt_backward(g);

	printf("{\"layers\": %d, \"heads\": %d, \"batch\": %d, \"context\": %d, \"loss\": %.17g, \"text\": [",
	       GPT_LAYERS, GPT_HEADS, GPT_BATCH, GPT_CONTEXT, loss);
	for (size_t i = 0; i + 1 < sizeof(g->text) / sizeof(g->text[0]); i++)
		printf("%s%d", i ? ", " : "", g->text[i]);
	printf("], \"tensors\": {");
	for (int t = 0; t < g->ntensors; t++) {
		struct tensor_shape s = tensor_shape_of(&g->sizes, t);

		if (!tensor_is_there(&g->sizes, t))
			continue;

		printf("%s\n\"%s\": {\"shape\": [%zu, %zu], ", t ? "," : "", s.name, s.rows,
		       s.columns);
		print_numbers("values", g->values[t], s.n);
		printf(", ");
		print_numbers("gradients", g->gradients[t], s.n);
		printf("}");
	}
	printf("}}\n");
	gpt_close(g);
	return good ? 0 : 1;
}
