/* The training loop. */
#include "tools/common/tool.h"
#include "tools/zerotrain/model/random.h"
#include "tools/zerotrain/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void keep_loss(struct losses *l, long step, double value)
{
	if (l->n == l->room) {
		size_t room = l->room ? 2 * l->room : 256;
		struct loss *at = realloc(l->at, room * sizeof(*at));

		if (!at)
			return;
		l->at = at;
		l->room = room;
	}
	l->at[l->n++] = (struct loss){ step, value };
}

/* Sequence number b of a batch is the text from `from` on. */
static void fill_sequence(struct run *r, int b, const uint8_t *from)
{
	size_t t = r->data.context;

	memcpy(r->in + (size_t)b * t, from, t);
	memcpy(r->targets + (size_t)b * t, from + 1, t);
}

/* ---- Updates --------------------------------------------------------------------------------- */

/* Rank r has the r-th part of a micro-step's samples. Dropout goes by the sample, whoever has
 * it. */
static struct batch load_batch(struct run *r)
{
	int n = r->engine.batch;
	uint64_t first = r->position + (uint64_t)r->rank * (uint64_t)n;
	uint64_t seed = make_key((uint64_t)r->options->seed, 0x64726f70);

	for (int b = 0; b < n; b++) {
		fill_sequence(r, b, data_sample(&r->data, first + (uint64_t)b));
		r->keys[b] = make_key(seed, first + (uint64_t)b);
	}
	return (struct batch){ n, (int)r->data.context, r->in, r->targets, r->keys };
}

/* If a row cannot be written, as on a full disk, a message says so and training goes on. */
static int log_step(struct run *r, const struct kolo_zero_result *result)
{
	int rc = r->log ? kolo_zero_log_step(r->log, result) : 0;

	if (rc != KOLO_ESYS || kolo_comm_status(r->comm) < 0)
		return rc;
	fprintf(stderr, "zerotrain: step %ld: logging: %s\n", result->step, kolo_last_error());
	return 0;
}

static int do_micro_step(struct run *r, struct kolo_zero_result *result)
{
	struct kolo_zero *zero = r->engine.zero;
	struct batch batch = load_batch(r);
	double loss;
	int rc, logged;

	if ((rc = kolo_zero_forward(zero, (size_t)batch.count)) < 0 ||
	    (rc = model_forward(r->model, &batch, kolo_zero_loss_scale(zero), &loss)) < 0 ||
	    (rc = kolo_zero_backward(zero, loss)) < 0 || (rc = model_backward(r->model)) < 0)
		return rc;
	rc = kolo_zero_step(zero, result);
	r->position += (uint64_t)batch.count * (uint64_t)r->nranks;
	r->bytes += (uint64_t)batch.count * (uint64_t)r->nranks * r->data.context;
	if (rc < 0 && rc != KOLO_EOVERFLOW)
		return rc;
	logged = log_step(r, result);
	return rc ? rc : logged;
}

/* ---- Validation ------------------------------------------------------------------------------ */

/* The sum of losses of this rank's windows of the text that is not trained on. Ranks without a
 * window compute all the same, because all ranks must use the same tensors. */
static int sum_validation(struct run *r, double *sum)
{
	uint64_t step = (uint64_t)r->engine.batch * (uint64_t)r->nranks;
	int rc = 0;

	for (uint64_t at = 0; rc == 0 && at < r->data.validation; at += step) {
		struct batch batch = { 0, (int)r->data.context, r->in, r->targets, NULL };
		double loss;

		for (int b = 0; b < r->engine.batch; b++) {
			uint64_t w = at + (uint64_t)r->rank + (uint64_t)b * (uint64_t)r->nranks;

			if (w < r->data.validation)
				fill_sequence(r, batch.count++, data_validation(&r->data, w));
		}
		rc = model_forward(r->model, &batch, 1, &loss);
		*sum += loss * batch.count;
	}
	return rc;
}

static int validate(struct run *r, long step)
{
	double sum = 0;
	int rc = sum_validation(r, &sum);

	if (rc == 0)
		rc = kolo_all_reduce(r->comm, &sum, &sum, 1, KOLO_F64, KOLO_SUM, NULL);
	if (rc < 0)
		return engine_failed(r->comm, "validation", rc);
	sum /= (double)r->data.validation;
	if (r->rank == 0)
		printf("step %ld validation %.9f\n", step, sum);
	keep_loss(&r->validated, step, sum);
	return EXIT_GOOD;
}

/* ---- Loop ------------------------------------------------------------------------------------ */

/* When the last line was printed, and how many bytes had been trained on. */
struct pace {
	double us;
	uint64_t bytes;
};

static void print_step(struct run *r, const struct kolo_zero_result *result, struct pace *pace)
{
	double now = tool_now_us();

	printf("step %ld loss %.9f tokens/s %.0f lr %.4g scale %g\n", result->step, result->loss,
	       (double)(r->bytes - pace->bytes) / (now - pace->us) * 1e6, result->lr,
	       result->loss_scale);
	fflush(stdout);
	*pace = (struct pace){ now, r->bytes };
}

/* What is due after an update. */
static int end_step(struct run *r, const struct kolo_zero_result *result, struct pace *pace)
{
	const struct options *o = r->options;
	bool last = result->step == o->steps;
	int rc = EXIT_GOOD;

	keep_loss(&r->trained, result->step, result->loss);
	if (r->rank == 0 && (last || result->step == 1 || result->step % o->print == 0))
		print_step(r, result, pace);
	if (last || (o->validate && result->step % o->validate == 0)) {
		double before = tool_now_us();

		rc = validate(r, result->step);
		pace->us += tool_now_us() - before;
	}
	if (rc == EXIT_GOOD && o->save && (last || result->step % o->keep == 0))
		rc = save_run(r);
	return rc;
}

int train(struct run *r)
{
	struct kolo_zero_progress progress;
	double began = tool_now_us();
	struct pace pace = { .us = began };
	int rc = EXIT_GOOD;

	kolo_zero_progress_get(r->engine.zero, &progress);
	while (rc == EXIT_GOOD && progress.step < r->options->steps) {
		struct kolo_zero_result result = { 0 };
		int status = do_micro_step(r, &result);

		if (status < 0)
			return engine_failed(r->comm, "training", status);
		if (result.skipped && r->rank == 0)
			printf("step %ld skipped: %s; scale %g\n", result.step, result.overflow,
			       kolo_zero_loss_scale(r->engine.zero));
		if (!result.updated)
			continue;
		progress.step = result.step;
		rc = end_step(r, &result, &pace);
	}
	r->seconds = (tool_now_us() - began) / 1e6;
	return rc;
}
