/* The training loop. */
#include "tools/common/tool.h"
#include "tools/zerotrain/math/random.h"
#include "tools/zerotrain/run.h"

#include <math.h>
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

/* The tokens of a sequence that this rank has. */
static size_t length_of(const struct run *r)
{
	return r->data.context / (size_t)r->parallel.nparts;
}

/* Sequence number b of all micro-batches is the text from `from` on: this rank's two chunks of it,
 * or, if it has whole sequences, both halves. */
static void fill_sequence(struct run *r, size_t b, size_t from)
{
	size_t n = length_of(r), half = r->parallel.nparts > 1 ? n / 2 : n, at = b * n;

	if (r->data.packing != NO_DOCUMENTS) {
		documents_fill(&r->data.documents, from, n, r->in + at, r->targets + at,
			       r->counted + at, r->begins + at);
		return;
	}
	for (size_t t = 0; t < n; t += half) {
		size_t place = from + part_place(&r->engine.sizes, n, t);

		data_read(&r->data, place, half, r->in + at + t);
		data_read(&r->data, place + 1, half, r->targets + at + t);
	}
}

/* The batch of `count` sequences from number `first` of all micro-batches on. */
static struct batch batch_from(const struct run *r, size_t first, int count)
{
	size_t t = length_of(r), at = first * t;

	return (struct batch){
		.count = count,
		.length = (int)t,
		.in = r->in + at,
		.targets = r->targets + at,
		.keys = r->keys + first,
		.counted = r->counted ? r->counted + at : NULL,
		.begins = r->begins ? r->begins + at : NULL,
	};
}

static size_t counted_tokens(const struct batch *b)
{
	size_t n = (size_t)b->count * (size_t)b->length, counted = 0;

	for (size_t i = 0; i < n; i++)
		counted += !b->counted || b->counted[i];
	return counted;
}

/* ---- Updates --------------------------------------------------------------------------------- */

/* Samples of one replica in a micro-step. */
static size_t samples_of(const struct run *r)
{
	return (size_t)r->parallel.micros * (size_t)r->engine.batch;
}

/* Replica r has the r-th part of a micro-step's samples. Dropout goes by the sample, whoever has
 * it. */
static void load_batches(struct run *r)
{
	size_t n = samples_of(r), each = (size_t)r->engine.batch;
	uint64_t first = r->position + (uint64_t)r->parallel.replica * n;
	uint64_t seed = make_key((uint64_t)r->options->seed, 0x64726f70);

	for (size_t b = 0; b < n; b++) {
		fill_sequence(r, b, data_sample(&r->data, first + b));
		r->keys[b] = make_key(seed, first + b);
	}
	for (size_t m = 0; m < (size_t)r->parallel.micros; m++)
		r->batches[m] = batch_from(r, m * each, (int)each);
}

/* What the engine counts of a micro-step, and the part of each micro-batch in it: samples; of
 * documents, which differ, tokens that count. */
static size_t weigh_batches(struct run *r)
{
	size_t micros = (size_t)r->parallel.micros, all = 0;

	for (size_t m = 0; m < micros; m++)
		all += counted_tokens(&r->batches[m]);
	for (size_t m = 0; m < micros; m++)
		r->shares[m] = r->data.packing == NO_DOCUMENTS || all == 0
				       ? 1 / (double)micros
				       : (double)counted_tokens(&r->batches[m]) / (double)all;
	return r->data.packing == NO_DOCUMENTS ? samples_of(r) : all;
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

/* Whether this rank's loss counts: one rank of each replica. */
static bool counts(const struct run *r)
{
	return parallel_has_head(&r->parallel) && r->parallel.place.tensor == 0;
}

/* Forward and backward of a whole model on this rank: gradients go to the engine as they come. */
static int run_whole(struct run *r)
{
	struct kolo_zero *zero = r->engine.zero;
	double loss;
	int rc;

	if ((rc = model_forward(r->model, 0, 0, &r->batches[0], kolo_zero_loss_scale(zero), NULL,
				NULL, &loss)) < 0 ||
	    (rc = kolo_zero_backward(zero, counts(r) ? loss : NAN)) < 0)
		return rc;
	return model_backward(r->model, 0, 0, BOTH, NULL, NULL);
}

static int run_stages(struct run *r)
{
	struct kolo_zero *zero = r->engine.zero;
	double loss;
	int rc;

	if ((rc = run_pipeline(r, kolo_zero_loss_scale(zero), &loss)) < 0)
		return rc;
	return kolo_zero_backward(zero, counts(r) ? loss : NAN);
}

static int do_micro_step(struct run *r, struct kolo_zero_result *result)
{
	struct kolo_zero *zero = r->engine.zero;
	uint64_t all = samples_of(r) * (uint64_t)r->parallel.replicas;
	int rc, logged;

	load_batches(r);
	if ((rc = kolo_zero_forward(zero, weigh_batches(r))) < 0 ||
	    (rc = r->parallel.pipeline ? run_stages(r) : run_whole(r)) < 0)
		return rc;
	rc = kolo_zero_step(zero, result);
	r->position += all;
	r->tokens += all * r->data.context;
	if (rc < 0 && rc != KOLO_EOVERFLOW)
		return rc;
	logged = log_step(r, result);
	return rc ? rc : logged;
}

/* ---- Validation ------------------------------------------------------------------------------ */

/* The sum of losses of this replica's windows of the text that is not trained on, and what it is
 * the sum of: windows, or of documents tokens that count. Replicas without a window compute all the
 * same, because all ranks must use the same tensors. */
static int sum_validation(struct run *r, double sums[2])
{
	uint64_t replicas = (uint64_t)r->parallel.replicas;
	uint64_t step = (uint64_t)r->engine.batch * replicas;
	int rc = 0;

	for (uint64_t at = 0; rc == 0 && at < r->data.validation; at += step) {
		struct batch batch = batch_from(r, 0, 0);
		double loss = 0, n;

		batch.keys = NULL;

		for (int b = 0; b < r->engine.batch; b++) {
			uint64_t w = at + (uint64_t)r->parallel.replica + (uint64_t)b * replicas;

			if (w < r->data.validation)
				fill_sequence(r, (size_t)batch.count++,
					      data_validation(&r->data, w));
		}
		rc = run_forward(r, &batch, &loss);
		n = r->data.packing == NO_DOCUMENTS ? batch.count : (double)counted_tokens(&batch);
		sums[0] += counts(r) ? loss * n / r->parallel.nparts : 0;
		sums[1] += counts(r) ? n / r->parallel.nparts : 0;
	}
	return rc;
}

static int validate(struct run *r, long step)
{
	double sums[2] = { 0 }, mean;
	int rc = sum_validation(r, sums);

	if (rc == 0)
		rc = kolo_all_reduce(r->comm, sums, sums, 2, KOLO_F64, KOLO_SUM, NULL);
	if (rc < 0)
		return engine_failed(r->comm, "validation", rc);
	mean = sums[0] / sums[1];
	if (r->rank == 0)
		printf("step %ld validation %.9f\n", step, mean);
	keep_loss(&r->validated, step, mean);
	return EXIT_GOOD;
}

/* ---- Loop ------------------------------------------------------------------------------------ */

/* When the last line was printed, and how many tokens had been trained on. */
struct pace {
	double us;
	uint64_t tokens;
};

static void print_step(struct run *r, const struct kolo_zero_result *result, struct pace *pace)
{
	double now = tool_now_us();

	printf("step %ld loss %.9f tokens/s %.0f lr %.4g scale %g\n", result->step, result->loss,
	       (double)(r->tokens - pace->tokens) / (now - pace->us) * 1e6, result->lr,
	       result->loss_scale);
	fflush(stdout);
	*pace = (struct pace){ now, r->tokens };
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
	if (rc == EXIT_GOOD && o->sample_every && !last && result->step % o->sample_every == 0) {
		double before = tool_now_us();

		rc = write_sample(r);
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
	if (rc == EXIT_GOOD && r->options->steps == 0)
		rc = validate(r, 0);
	r->seconds = (tool_now_us() - began - r->sampled_us) / 1e6;
	return rc;
}
