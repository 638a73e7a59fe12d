/* The model on this rank's stages: a batch of micro-batches through the pipeline, and forward
 * passes alone. */
#include "tools/common/tool.h"
#include "tools/zerotrain/run.h"

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
	int rc = model_forward(r->model, chunk, a->buffer, &r->batches[a->micro],
			       b->scale * r->shares[a->micro], tensors->input, tensors->output,
			       &loss);

	b->loss += loss * r->shares[a->micro];
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
	struct running batch = { .run = r, .scale = scale };
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
static size_t boundary_of(const struct run *r, size_t rows)
{
	size_t first;

	return kolo_tp_rows(r->parallel.group, rows, &first) * (size_t)r->options->model.dim;
}

/* One of this rank's parts, with input from the stage before it. */
static int pass_chunk(struct run *r, int chunk, size_t rows, compute_part_fn *run_part, void *arg)
{
	const struct kolo_grid_place *here = &r->parallel.place;
	int stages = here->pipe_size, part = chunk * stages + here->pipe, rc = 0;
	bool last = part == stages * r->parallel.chunks - 1;
	size_t n = boundary_of(r, rows);
	struct kolo_comm *pipe;

	if (stages == 1)
		return run_part(r, chunk, NULL, NULL, arg);
	pipe = kolo_grid_comm(r->parallel.grid, KOLO_GRID_PIPE);
	if (part > 0)
		rc = kolo_recv(pipe, r->input, n, KOLO_F32, (here->pipe + stages - 1) % stages,
			       NULL);
	if (rc == 0)
		rc = run_part(r, chunk, part > 0 ? r->input : NULL, last ? NULL : r->output, arg);
	if (rc == 0 && !last)
		rc = kolo_send(pipe, r->output, n, KOLO_F32, (here->pipe + 1) % stages, NULL);
	return rc;
}

int pass_stages(struct run *r, size_t rows, compute_part_fn *run_part, void *arg)
{
	int rc = 0;

	for (int c = 0; rc == 0 && c < r->parallel.chunks; c++)
		rc = pass_chunk(r, c, rows, run_part, arg);
	return rc;
}

struct passing {
	const struct batch *batch;
	double loss;
};

static int forward_part(struct run *r, int part, const float *input, float *output, void *arg)
{
	struct passing *p = arg;

	return model_forward(r->model, part, 0, p->batch, 1, input, output, &p->loss);
}

int run_forward(struct run *r, const struct batch *batch, double *loss)
{
	struct passing p = { batch, 0 };
	int rc = pass_stages(r, (size_t)batch->count * (size_t)batch->length, forward_part, &p);

	*loss = p.loss;
	return rc;
}
