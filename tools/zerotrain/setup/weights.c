/* The model's way to the engine's tensors: values as floats, gradients in the engine's type, and
 * with a pipeline the embedding's gradients, which two stages have. */
#include "tools/zerotrain/setup/engine.h"

#include <stdlib.h>
#include <string.h>

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Where tensors lie as floats: elements of all, and of the largest. Blocks share places: the model
 * uses one at a time. */
static int plan_places(struct engine *e, size_t *all, size_t *largest)
{
	int n = tensor_count(&e->sizes), last = n - 3;

	*all = *largest = 0;
	e->places = calloc((size_t)n, sizeof(*e->places));
	if (!e->places)
		return kolo_error_set(KOLO_ENOMEM, "places of %d tensors: out of memory", n);
	for (int t = 0; t < n; t++) {
		size_t elements = tensor_shape_of(&e->sizes, t).n;

		if (!tensor_is_there(&e->sizes, t))
			continue;
		*largest = elements > *largest ? elements : *largest;
		if (t >= FIRST_BLOCK + PER_BLOCK && t < last) {
			e->places[t] = e->places[t - PER_BLOCK];
			continue;
		}
		e->places[t] = *all;
		*all += elements;
	}
	return 0;
}

/* Whether the head is the embedding, and here. */
static bool has_tied_head(const struct engine *e)
{
	return !e->sizes.untied && parallel_has_head(e->parallel);
}

static bool both_ends(const struct engine *e)
{
	return parallel_embeds(e->parallel) && has_tied_head(e);
}

static size_t count_sums(const struct engine *e)
{
	bool here = parallel_embeds(e->parallel) || has_tied_head(e);

	return here ? tensor_shape_of(&e->sizes, BYTES).n * (both_ends(e) ? 2 : 1) : 0;
}

static int take_sums(struct engine *e)
{
	e->sums_n = count_sums(e);
	e->sums = e->sums_n ? device_take(&e->device, e->sums_n * sizeof(*e->sums),
					  "sums of the embedding's gradients")
			    : NULL;
	return e->sums_n && !e->sums ? KOLO_ENOMEM : 0;
}

int weights_open(struct engine *e)
{
	bool wide = e->type == KOLO_F32, piped = e->parallel->pipeline != NULL;
	size_t all, largest;
	int rc = piped ? take_sums(e) : 0;

	if (rc < 0 || (wide && !e->device.copied))
		return rc;
	if ((rc = plan_places(e, &all, &largest)) < 0)
		return rc;
	e->floats_len = all * sizeof(*e->floats);
	e->halves_len = wide ? 0 : largest * sizeof(*e->halves);
	e->up_len = e->device.copied ? largest * kolo_type_size(piped ? KOLO_F32 : e->type) : 0;
	if (!(e->floats = device_take(&e->device, e->floats_len, "tensors as floats")) ||
	    (!wide && !(e->halves = device_take(&e->device, e->halves_len, "a tensor in 16 bits"))))
		return KOLO_ENOMEM;
	return e->up_len ? kolo_zero_device_alloc(e->device.zero, e->up_len, "a gradient", &e->up)
			 : 0;
}

void weights_close(struct engine *e)
{
	if (e->up)
		kolo_zero_device_free(e->device.zero, e->up, e->up_len);
	device_give(&e->device, e->halves, e->halves_len);
	device_give(&e->device, e->floats, e->floats_len);
	device_give(&e->device, e->sums, e->sums_n * sizeof(*e->sums));
	free(e->places);
}

/* ---- One tensor ------------------------------------------------------------------------------ */

static int use_tensor(void *arg, int tensor, const real **out)
{
	struct engine *e = arg;
	size_t n = tensor_shape_of(&e->sizes, tensor).n;
	float *floats = e->floats ? e->floats + e->places[tensor] : NULL;
	void *copy = e->type == KOLO_F32 ? (void *)floats : e->halves;
	const void *values;
	int rc = kolo_zero_use(e->zero, e->numbers[tensor], &values);

	if (rc == 0 && e->device.copied) {
		rc = kolo_zero_device_copy(e->device.zero, KOLO_ZERO_DOWN, copy, values,
					   n * kolo_type_size(e->type));
		values = copy;
	}
	if (rc < 0)
		return rc;
	*out = e->type == KOLO_F32 ? values : floats;
	return e->type == KOLO_F32 ? 0 : kolo_cast(values, e->type, floats, KOLO_F32, n, 1);
}

static int release_tensor(void *arg, int tensor)
{
	struct engine *e = arg;

	return kolo_zero_release(e->zero, e->numbers[tensor]);
}

/* Gives the engine a gradient of `len` bytes. */
static int give_gradient(struct engine *e, int tensor, const void *values, size_t len)
{
	int rc = 0;

	if (e->device.copied) {
		rc = kolo_zero_device_copy(e->device.zero, KOLO_ZERO_UP, e->up, values, len);
		values = e->up;
	}
	return rc < 0 ? rc : kolo_zero_gradient(e->zero, e->numbers[tensor], values);
}

static int report_gradient(void *arg, int tensor, const real *gradient)
{
	struct engine *e = arg;
	size_t n = tensor_shape_of(&e->sizes, tensor).n;
	int rc;

	if (e->type == KOLO_F32)
		return give_gradient(e, tensor, gradient, n * sizeof(*gradient));
	rc = kolo_cast(gradient, KOLO_F32, e->halves, e->type, n, 1);
	return rc < 0 ? rc : give_gradient(e, tensor, e->halves, n * kolo_type_size(e->type));
}

/* ---- A pipeline ------------------------------------------------------------------------------ */

static void add(float *sum, const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum[i] += x[i];
}

/* The embedding's gradients are added up here, the head's apart: with both ends behind them. All
 * others go to the engine, as floats. */
static int add_or_give(void *arg, int tensor, const real *gradient)
{
	struct engine *e = arg;
	bool head = tensor == tensor_count(&e->sizes);
	size_t n = tensor_shape_of(&e->sizes, head ? BYTES : tensor).n;

	if (head || tensor == BYTES)
		add(e->sums + (head && both_ends(e) ? n : 0), gradient, n);
	return head || tensor == BYTES ? 0
				       : give_gradient(e, tensor, gradient, n * sizeof(*gradient));
}

struct weights engine_weights(struct engine *e)
{
	bool piped = e->parallel->pipeline != NULL;

	return (struct weights){ .use = use_tensor,
				 .release = release_tensor,
				 .gradient = piped ? add_or_give : report_gradient,
				 .arg = e,
				 .apart = piped };
}

/* Does something for all tensors that are here. */
static int for_all(struct engine *e, int (*act)(struct engine *e, int tensor))
{
	int rc = 0;

	for (int t = 0; rc == 0 && t < tensor_count(&e->sizes); t++)
		if (parallel_has(e->parallel, &e->sizes, t))
			rc = act(e, t);
	return rc;
}

static int hold(struct engine *e, int tensor)
{
	return kolo_zero_use(e->zero, e->numbers[tensor], NULL);
}

static int let_go(struct engine *e, int tensor)
{
	return kolo_zero_release(e->zero, e->numbers[tensor]);
}

int weights_hold(struct engine *e)
{
	return for_all(e, hold);
}

int weights_release(struct engine *e)
{
	return for_all(e, let_go);
}

int weights_begin(struct engine *e)
{
	if (e->sums)
		memset(e->sums, 0, e->sums_n * sizeof(*e->sums));
	return weights_hold(e);
}

/* The embedding's gradient and the head's are added up before anything else: on one stage here, on
 * several between the first and the last. So they have the same bits on any number of stages. */
static int join_ends(struct engine *e, size_t n)
{
	struct kolo_comm *tied;

	if (both_ends(e))
		add(e->sums, e->sums + n, n);
	if (e->parallel->place.pipe_size == 1 || e->sizes.untied)
		return 0;
	tied = kolo_grid_comm(e->parallel->grid, KOLO_GRID_TIED);
	e->tied_bytes += n * sizeof(*e->sums); /* K, as round a ring of two */
	return kolo_all_reduce(tied, e->sums, e->sums, n, KOLO_F32, KOLO_SUM, NULL);
}

int weights_end(struct engine *e)
{
	size_t n = tensor_shape_of(&e->sizes, BYTES).n;
	int rc = e->sums ? join_ends(e, n) : 0;

	if (rc == 0 && e->sums)
		rc = give_gradient(e, BYTES, e->sums, n * sizeof(*e->sums));
	return rc < 0 ? rc : weights_release(e);
}
