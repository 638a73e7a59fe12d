/* What this model computes with the weights of a folder of transformers: prints the loss and the
 * logits of a batch, and writes its gradients as such a folder, for zerotrain_transformers.py.
 *
 * usage: zerotrain_foreign FOLDER GRADIENTS COUNT LENGTH < TOKENS
 * TOKENS are COUNT times LENGTH + 1 of 16 bits. */
#include "tools/zerotrain/foreign/foreign.h"
#include "tools/zerotrain/model/model.h"

#include <stdlib.h>
#include <string.h>

struct arrays {
	struct sizes sizes;
	real **values, **gradients;
};

static int use(void *arg, int tensor, const real **out)
{
	*out = ((struct arrays *)arg)->values[tensor];
	return 0;
}

static int release(void *arg, int tensor)
{
	(void)arg;
	(void)tensor;
	return 0;
}

static int take_gradient(void *arg, int tensor, const real *gradient)
{
	struct arrays *a = arg;

	memcpy(a->gradients[tensor], gradient,
	       tensor_shape_of(&a->sizes, tensor).n * sizeof(*gradient));
	return 0;
}

static int load(const char *folder, struct arrays *a)
{
	struct foreign f;
	int n = tensor_count(&a->sizes), rc = foreign_open(folder, &a->sizes, &f);

	a->values = calloc((size_t)n, sizeof(*a->values));
	a->gradients = calloc((size_t)n, sizeof(*a->gradients));
	for (int t = 0; rc == 0 && t < n; t++) {
		size_t elements = tensor_shape_of(&a->sizes, t).n;

		a->values[t] = calloc(elements, sizeof(real));
		a->gradients[t] = calloc(elements, sizeof(real));
		if (tensor_is_there(&a->sizes, t))
			foreign_values(&f, &a->sizes, t, 0, elements, a->values[t]);
	}
	foreign_close(&f);
	return rc;
}

static int write_gradients(const char *folder, const struct arrays *a)
{
	FILE *f = NULL;
	int rc = foreign_make_folder(folder);

	if (rc || (rc = foreign_create(folder, &a->sizes, &f)))
		return rc;
	for (int t = 0; rc == 0 && t < tensor_count(&a->sizes); t++)
		if (tensor_is_there(&a->sizes, t))
			rc = foreign_write(f, &a->sizes, t, a->gradients[t]);
	return fclose(f) ? -1 : rc;
}

/* Reads sequences, and puts their tokens and the token after each where the batch has them. */
static int read_batch(size_t count, size_t length, token *in, token *targets)
{
	size_t n = length + 1;
	token *all = malloc(count * n * sizeof(*all));
	bool good = all && fread(all, sizeof(*all), count * n, stdin) == count * n;

	for (size_t b = 0; good && b < count; b++) {
		memcpy(in + b * length, all + b * n, length * sizeof(*in));
		memcpy(targets + b * length, all + b * n + 1, length * sizeof(*in));
	}
	free(all);
	return good ? 0 : 1;
}

static int compute(struct arrays *a, struct batch batch)
{
	const struct part all = { 0, a->sizes.layers, 1 };
	const struct weights weights = { use, release, take_gradient, a, false };
	size_t rows = (size_t)batch.count * (size_t)batch.length;
	const token *targets = batch.targets;
	struct kolo_tp *group = NULL;
	struct model *m = NULL;
	double loss = 0;
	int rc = model_group(NULL, false, 0, &group);

	if (rc == 0 &&
	    !(m = model_create(&a->sizes, &all, 1, &weights, (struct groups){ group, NULL }, NULL)))
		rc = 1;
	batch.targets = NULL;
	if (rc == 0)
		rc = model_forward(m, 0, 0, &batch, 1, NULL, NULL, &loss);
	for (size_t r = 0; rc == 0 && r < rows; r++)
		for (int v = 0; v < a->sizes.values; v++)
			printf("%.9g\n", (double)model_logits(m, 0, 0, r)[v]);
	batch.targets = targets;
	if (rc == 0)
		rc = model_forward(m, 0, 0, &batch, 1, NULL, NULL, &loss);
	printf("%.12g\n", loss);
	if (rc == 0)
		rc = model_backward(m, 0, 0, BOTH, NULL, NULL);
	model_destroy(m);
	kolo_tp_destroy(group);
	return rc;
}

int main(int argc, char **argv)
{
	struct arrays a = { 0 };
	size_t rows;
	token *in, *targets;
	int rc;

	if (argc != 5 || (rc = foreign_read_sizes(argv[1], &a.sizes)))
		return 1;
	a.sizes.batch = atoi(argv[3]);
	a.sizes.context = atoi(argv[4]);
	a.sizes.segment = a.sizes.layers;
	rows = (size_t)a.sizes.batch * (size_t)a.sizes.context;
	in = calloc(rows, sizeof(*in));
	targets = calloc(rows, sizeof(*targets));
	if (!in || !targets ||
	    (rc = read_batch((size_t)a.sizes.batch, (size_t)a.sizes.context, in, targets)) ||
	    (rc = load(argv[1], &a)) ||
	    (rc = compute(&a, (struct batch){ .count = a.sizes.batch,
					      .length = a.sizes.context,
					      .in = in,
					      .targets = targets })))
		return 1;
	rc = write_gradients(argv[2], &a);
	for (int t = 0; t < tensor_count(&a.sizes); t++) {
		free(a.values[t]);
		free(a.gradients[t]);
	}
	free(a.values);
	free(a.gradients);
	free(in);
	free(targets);
	return rc;
}
