/* The model on this rank's stages: a batch of micro-batches through the pipeline, and forward
 * passes alone, for validation and for texts. */
#include "tools/common/tool.h"
#include "tools/zerotrain/run.h"

#include <string.h>

/* ---- A batch --------------------------------------------------------------------------------- */

/* An action of a batch that runs. */
struct running {
	struct run *run;
	double scale, loss; /* of the loss, and its mean so far */
};

static int forward(struct running *b, const struct kolo_action *a,
		   const struct kolo_pipeline_tensors *tensors)
{
	struct run *r = b->run;
	int chunk = a->part / r->parallel.place.pipe_size;
	double loss;
	int rc = model_forward(r->model, chunk, a->buffer, &r->batches[a->micro], b->scale,
			       tensors->input, tensors->output, &loss);

	b->loss += loss / r->parallel.micros;
	return rc;
}

static int backward(struct running *b, const struct kolo_action *a,
		    const struct kolo_pipeline_tensors *tensors)
{
	struct run *r = b->run;
	int chunk = a->part / r->parallel.place.pipe_size;
	enum half half = a->type == KOLO_ACTION_BACKWARD         ? BOTH
			 : a->type == KOLO_ACTION_BACKWARD_INPUT ? INPUTS
								 : WEIGHTS;

	return model_backward(r->model, chunk, a->buffer, half, tensors->output_gradient,
			      tensors->input_gradient);
}

static double *time_of(struct run *r, enum kolo_action_type type)
{
	switch (type) {
	case KOLO_ACTION_FORWARD: return &r->forward_us;
	case KOLO_ACTION_BACKWARD_WEIGHT: return &r->weights_us;
	default: return &r->backward_us;
	}
}

static int compute(void *arg, const struct kolo_action *a,
		   const struct kolo_pipeline_tensors *tensors)
{
	struct running *b = arg;
	double began = tool_now_us(), ended;
	int rc = a->type == KOLO_ACTION_FORWARD ? forward(b, a, tensors) : backward(b, a, tensors);

	ended = tool_now_us();
	timeline_note(&b->run->timeline, a, began, ended);
	*time_of(b->run, a->type) += ended - began;
	return rc;
}

int run_pipeline(struct run *r, double scale, double *loss)
{
	struct running batch = { .run = r, .scale = scale / r->parallel.micros };
	double began;
	int rc = weights_begin(&r->engine);

	if (rc < 0)
		return rc;
	timeline_begin(&r->timeline);
	began = tool_now_us();
	rc = kolo_pipeline_run(r->parallel.executor, compute, &batch);
	r->piped_us += tool_now_us() - began;
	r->updates++;
	*loss = batch.loss;
	return rc < 0 ? rc : weights_end(&r->engine);
}

/* ---- Forward alone --------------------------------------------------------------------------- */

/* The elements that one part gives the next. */
static size_t boundary_of(const struct run *r, const struct batch *batch)
{
	size_t first, rows = (size_t)batch->count * (size_t)batch->length;

	return kolo_tp_rows(r->parallel.group, rows, &first) * (size_t)r->options->dim;
}

static int run_chunk(struct run *r, int chunk, const struct batch *batch, double *loss)
{
	const struct kolo_grid_place *here = &r->parallel.place;
	int stages = here->pipe_size, part = chunk * stages + here->pipe, rc = 0;
	bool last = part == stages * r->parallel.chunks - 1;
	size_t n = boundary_of(r, batch);
	struct kolo_comm *pipe;

	if (stages == 1)
		return model_forward(r->model, 0, 0, batch, 1, NULL, NULL, loss);
	pipe = kolo_grid_comm(r->parallel.grid, KOLO_GRID_PIPE);
	if (part > 0)
		rc = kolo_recv(pipe, r->input, n, KOLO_F32, (here->pipe + stages - 1) % stages,
			       NULL);
	if (rc == 0)
		rc = model_forward(r->model, chunk, 0, batch, 1, part > 0 ? r->input : NULL,
				   last ? NULL : r->output, loss);
	if (rc == 0 && !last)
		rc = kolo_send(pipe, r->output, n, KOLO_F32, (here->pipe + 1) % stages, NULL);
	return rc;
}

int run_forward(struct run *r, const struct batch *batch, double *loss)
{
	int rc = 0;

	for (int c = 0; rc == 0 && c < r->parallel.chunks; c++)
		rc = run_chunk(r, c, batch, loss);
	return rc;
}

/* The last stage puts its tensor group's logits together, and gives them to all others. */
static int share_logits(struct run *r, size_t row, real *logits)
{
	const struct parallel *p = &r->parallel;
	int stages = p->place.pipe_size, rc = 0;
	const real *own;

	if (parallel_has_head(p)) {
		own = model_logits(r->model, p->chunks - 1, 0, row);
		if (p->place.tensor_size == 1)
			memcpy(logits, own, VALUES * sizeof(*own));
		else
			rc = kolo_all_gather(kolo_grid_comm(p->grid, KOLO_GRID_TENSOR), own, logits,
					     (size_t)(VALUES / p->place.tensor_size), KOLO_F32,
					     NULL);
	}
	if (rc == 0 && stages > 1)
		rc = kolo_broadcast(kolo_grid_comm(p->grid, KOLO_GRID_PIPE), logits, logits, VALUES,
				    KOLO_F32, stages - 1, NULL);
	return rc;
}

int predict(struct run *r, const uint8_t *in, int length, real *logits)
{
	int size = r->options->sequence ? r->parallel.place.tensor_size : 1, rc;
	struct batch batch = { .count = 1, .in = r->in };
	double loss;

	/* No place sees those behind it. */
	batch.length = (length + size - 1) / size * size;
	memset(r->in, 0, (size_t)batch.length);
	memcpy(r->in, in, (size_t)length);
	rc = run_forward(r, &batch, &loss);
	return rc ? rc : share_logits(r, (size_t)length - 1, logits);
}
