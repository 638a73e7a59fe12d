/* Lists the tensors of the model: those of a file, of a GPT like zerotrain's, or of a stack of
 * equal square layers. */
#include "tools/zeroplan/zeroplan.h"

#include "tools/zerotrain/model/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* columns 0: a vector. */
static int put_tensor(struct tensors *t, const char *name, enum kolo_type type, size_t rows,
		      size_t columns)
{
	struct kolo_zero_tensor one = {
		.shape = { rows, columns },
		.ndims = columns ? 2 : 1,
		.type = type,
	};

	return add_tensor(t, &one, name);
}

/* ---- A GPT ----------------------------------------------------------------------------------- */

static int make_gpt(const struct options *o, const struct grid *g, enum kolo_type type,
		    struct tensors *out)
{
	struct sizes sizes = { .layers = o->layers,
			       .values = o->vocab,
			       .dim = o->dim,
			       .heads = o->heads,
			       .context = o->context,
			       .tensor_size = o->tensor };
	int rc = EXIT_GOOD;

	for (int i = 0; rc == EXIT_GOOD && i < tensor_count(&sizes); i++) {
		struct tensor_shape shape = tensor_shape_of(&sizes, i);

		if (!grid_has(o, g, i))
			continue;
		rc = put_tensor(out, shape.name, type, shape.rows, shape.columns);
		/* zerotrain's pipelines report floats, and add up those of the embedding's two
		 * ends themselves. */
		if (rc == EXIT_GOOD && o->micros) {
			out->list[out->n - 1].gradient_type = KOLO_F32;
			out->list[out->n - 1].summed = i == BYTES;
		}
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
	int rc = EXIT_GOOD;

	for (size_t i = 0; rc == EXIT_GOOD && i < layers; i++) {
		char name[24];

		snprintf(name, sizeof(name), "%zu", i);
		rc = put_tensor(out, name, type, width, width);
	}
	if (rc == EXIT_GOOD && rest)
		rc = put_tensor(out, "rest", type, rest, 0);
	snprintf(out->title, sizeof(out->title), "%zu layers of %zu x %zu%s", layers, width, width,
		 rest ? " and a vector of what is left" : "");
	return rc;
}

int make_tensors(const struct options *o, const struct grid *g, enum kolo_type type,
		 struct tensors *out)
{
	*out = (struct tensors){ 0 };
	if (o->tensors)
		return read_tensors(o->tensors, type, out);
	return o->parameters ? make_stack(o, type, out) : make_gpt(o, g, type, out);
}
