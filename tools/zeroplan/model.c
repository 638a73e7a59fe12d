/* Lists the tensors of the model: those of a GPT like zerotrain's, or those of a stack of equal
 * square layers. */
#include "tools/zeroplan/zeroplan.h"

#include "tools/zerotrain/model/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int make_room(struct tensors *t, int n)
{
	t->list = calloc((size_t)n, sizeof(*t->list));
	t->names = calloc((size_t)n, sizeof(*t->names));
	t->n = n;
	if (t->list && t->names)
		return EXIT_GOOD;
	fprintf(stderr, "zeroplan: out of memory for a list of %d tensors\n", n);
	return EXIT_FAILED;
}

/* columns 0: a vector. */
static void put_tensor(struct tensors *t, int i, enum kolo_type type, size_t rows, size_t columns)
{
	t->list[i] = (struct kolo_zero_tensor){
		.name = t->names[i],
		.shape = { rows, columns },
		.ndims = columns ? 2 : 1,
		.type = type,
	};
	t->parameters += rows * (columns ? columns : 1);
}

/* ---- A GPT ----------------------------------------------------------------------------------- */

static int make_gpt(const struct options *o, enum kolo_type type, struct tensors *out)
{
	struct sizes sizes = {
		.layers = o->layers, .dim = o->dim, .heads = o->heads, .context = o->context
	};
	int rc = make_room(out, tensor_count(&sizes));

	for (int i = 0; rc == EXIT_GOOD && i < out->n; i++) {
		struct tensor_shape shape = tensor_shape_of(&sizes, i);

		memcpy(out->names[i], shape.name, sizeof(shape.name));
		put_tensor(out, i, type, i == BYTES ? (size_t)o->vocab : shape.rows, shape.columns);
	}
	snprintf(out->title, sizeof(out->title), "GPT of %d blocks, %d wide, context %d, %d tokens",
		 o->layers, o->dim, o->context, o->vocab);
	return rc;
}

/* ---- A stack --------------------------------------------------------------------------------- */

enum { FEWEST_LAYERS = 12, WIDEST = 8192, STEP = 64 };

/* The width of at least FEWEST_LAYERS layers. */
static size_t choose_width(size_t parameters)
{
	size_t width = (size_t)sqrt((double)parameters / FEWEST_LAYERS);

	if (width >= STEP)
		width -= width % STEP;
	return width > WIDEST ? WIDEST : width > 0 ? width : 1;
}

static int make_stack(const struct options *o, enum kolo_type type, struct tensors *out)
{
	size_t width = choose_width(o->parameters), layers = o->parameters / (width * width);
	size_t rest = o->parameters - layers * width * width;
	int rc = make_room(out, (int)layers + (rest > 0));

	for (int i = 0; rc == EXIT_GOOD && i < out->n; i++) {
		bool is_rest = (size_t)i == layers;

		if (is_rest)
			snprintf(out->names[i], TENSOR_NAME, "rest");
		else
			snprintf(out->names[i], TENSOR_NAME, "%d", i);
		put_tensor(out, i, type, is_rest ? rest : width, is_rest ? 0 : width);
	}
	snprintf(out->title, sizeof(out->title), "%zu layers of %zu x %zu%s", layers, width, width,
		 rest ? " and a vector of what is left" : "");
	return rc;
}

int make_tensors(const struct options *o, enum kolo_type type, struct tensors *out)
{
	*out = (struct tensors){ 0 };
	return o->parameters ? make_stack(o, type, out) : make_gpt(o, type, out);
}

void free_tensors(struct tensors *t)
{
	free(t->list);
	free(t->names);
}
