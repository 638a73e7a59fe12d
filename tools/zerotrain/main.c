/* zerotrain from start to end: opens the engine, the text and the model, trains, and prints what
 * the options ask for. */
#include "tools/common/tool.h"
#include "tools/zerotrain/foreign/foreign.h"
#include "tools/zerotrain/run.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The files of the log are those of the config or of --log. */
static void print_line(const char *line, void *arg)
{
	(void)arg;
	puts(line);
}

static bool ends_with(const char *text, const char *ending)
{
	size_t len = strlen(text), tail = strlen(ending);

	return len > tail && strcmp(text + len - tail, ending) == 0;
}

static int open_log(struct run *r)
{
	const char *file = r->options->log;
	struct kolo_zero_log_config config;
	int rc;

	kolo_zero_log_config_init(&config);
	config.steps_per_print = r->engine.steps_per_print;
	config.wall_clock = r->engine.wall_clock;
	config.memory = r->engine.memory;
	config.print = r->engine.steps_per_print ? print_line : NULL;
	config.csv = r->engine.csv[0] ? r->engine.csv : NULL;
	config.jsonl = r->engine.jsonl[0] ? r->engine.jsonl : NULL;
	if (file && ends_with(file, ".csv")) {
		config.csv = file;
	} else if (file && ends_with(file, ".jsonl")) {
		config.jsonl = file;
	} else if (file) {
		fprintf(stderr, "zerotrain: --log %s: must be a name that ends in .csv or .jsonl\n",
			file);
		return EXIT_USAGE;
	}
	if (!config.print && !config.csv && !config.jsonl)
		return EXIT_GOOD;
	/* Of several engines that of rank 0 has a log. */
	if (r->parallel.place.tensor > 0 || r->parallel.place.pipe > 0)
		return EXIT_GOOD;
	rc = kolo_zero_log_create(parallel_data(&r->parallel), r->engine.zero, &config, &r->log);
	return rc < 0 ? engine_failed(r->comm, "--log", rc) : EXIT_GOOD;
}

static struct model *make_model(struct run *r)
{
	struct weights weights = engine_weights(&r->engine);
	struct room room = device_room(&r->engine.device);
	struct sizes sizes = r->engine.sizes;

	sizes.batch = r->engine.batch;
	sizes.texts = r->options->sample && r->options->cache ? r->options->samples : 0;
	return model_create(&sizes, r->parallel.parts, r->parallel.chunks, &weights,
			    (struct groups){ r->parallel.group, r->parallel.context }, &room);
}

/* What goes through the model, and from stage to stage. */
static bool make_batches(struct run *r)
{
	size_t micros = (size_t)r->parallel.micros, samples = micros * (size_t)r->engine.batch;
	size_t grown =
		((size_t)r->options->samples * PIECE + (size_t)r->parallel.place.tensor_size) *
		(size_t)r->options->model.dim;
	size_t n = model_boundary(r->model);

	n = n > grown ? n : grown;
	r->batches = calloc(micros, sizeof(*r->batches));
	r->in = malloc(samples * r->data.context * sizeof(*r->in));
	r->targets = malloc(samples * r->data.context * sizeof(*r->targets));
	r->keys = malloc(samples * sizeof(*r->keys));
	r->shares = malloc(micros * sizeof(*r->shares));
	if (r->data.packing != NO_DOCUMENTS) {
		r->counted = malloc(samples * r->data.context * sizeof(*r->counted));
		r->begins = malloc(samples * r->data.context * sizeof(*r->begins));
		if (!r->counted || !r->begins)
			return false;
	}
	if (r->parallel.place.pipe_size > 1) {
		r->input = malloc(n * sizeof(*r->input));
		r->output = malloc(n * sizeof(*r->output));
		if (!r->input || !r->output)
			return false;
	}
	return r->batches && r->in && r->targets && r->keys && r->shares;
}

static int open_model(struct run *r)
{
	size_t rows = (size_t)r->engine.batch * r->data.context / (size_t)r->parallel.nparts;
	int rc;

	/* CBLAS counts with int. */
	r->model = rows <= INT_MAX ? make_model(r) : NULL;
	if (r->model && make_batches(r)) {
		rc = parallel_connect(&r->parallel, model_boundary(r->model));
		return rc < 0 ? engine_failed(r->comm, "--pp", rc) : EXIT_GOOD;
	}
	if (rows <= INT_MAX && !r->model)
		engine_failed(r->comm, "activations", KOLO_ENOMEM);
	fprintf(stderr,
		"zerotrain: rank %d: out of memory for activations: use a smaller --batch or --context, or "
		"--recompute block\n",
		r->rank);
	return EXIT_FAILED;
}

static int find_end(const struct run *r)
{
	const struct options *o = r->options;

	if (o->packing == NO_DOCUMENTS)
		return -1;
	if (o->end_token != UNSET)
		return o->end_token;
	return r->bpe ? bpe_end(r->bpe) : 0;
}

/* The text, by the tokenizer if there is one. */
static int open_data(struct run *r)
{
	const struct options *o = r->options;
	struct source source = {
		.path = o->data,
		.width = o->tokens && !r->bpe ? 2 : 1,
		.values = o->model.values,
		.context = o->model.context,
		.seed = (uint64_t)o->seed,
		.packing = o->packing,
		.tokenizer = { r->bpe, find_end(r) },
	};

	r->end_token = source.tokenizer.end;
	if (o->packing != NO_DOCUMENTS && r->end_token < 0) {
		fprintf(stderr,
			"zerotrain: --end-token: must be given: --bpe %s has no <|endoftext|>\n",
			o->bpe);
		return EXIT_USAGE;
	}
	return data_open(&source, &r->data);
}

static int open_run(struct run *r)
{
	const struct options *o = r->options;
	bool some = o->recompute > 0 && o->recompute < o->model.layers;
	int rc;

	r->engine.sizes = o->model;
	r->engine.sizes.segment = some ? o->recompute : o->model.layers;
	r->engine.sizes.dropout = o->dropout;
	r->engine.sizes.seed = (uint64_t)o->seed;
	r->engine.sizes.segments = segments_of(o);
	r->engine.sizes.halves = o->schedule == KOLO_PIPELINE_ZB_H1;
	if (o->export && r->rank == 0 && (rc = foreign_make_folder(o->export)))
		return rc;
	if ((o->bpe && (rc = bpe_open(o->bpe, &r->bpe))) || (rc = check_prompt(r)) ||
	    (rc = open_data(r)) || (rc = engine_open(r->comm, o, &r->parallel, &r->engine)) ||
	    (rc = open_model(r)) || (rc = open_log(r)))
		return rc;
	if (o->timeline &&
	    (rc = timeline_open(&r->timeline, 3 * r->parallel.micros * r->parallel.chunks, r->rank,
				o->timeline)))
		return rc;
	if (o->plot && r->rank == 0 && (rc = open_plot(r)))
		return rc;
	return o->resume ? resume_run(r) : EXIT_GOOD;
}

static void close_run(struct run *r)
{
	kolo_zero_log_destroy(r->log);
	model_destroy(r->model);
	engine_close(&r->engine);
	parallel_close(&r->parallel);
	data_close(&r->data);
	bpe_close(r->bpe);
	kolo_comm_destroy(r->comm);
	if (r->picture)
		fclose(r->picture);
	timeline_close(&r->timeline);
	free(r->batches);
	free(r->input);
	free(r->output);
	free(r->in);
	free(r->targets);
	free(r->keys);
	free(r->counted);
	free(r->begins);
	free(r->shares);
	free(r->trained.at);
	free(r->validated.at);
}

static void print_device(struct kolo_zero_device *device, bool copied)
{
	struct kolo_zero_device_info info;

	kolo_zero_device_get(device, &info);
	printf("on %s %s of %.2f MB%s\n", info.kind, info.name, (double)info.budget / 1e6,
	       copied ? "; the GPT is computed on the host, with copies of what is there" : "");
}

/* The groups of ranks, and what a pipeline does. */
static void print_grid(const struct parallel *p)
{
	size_t len = kolo_grid_text(&p->place, NULL, 0) + 1;
	char *groups = malloc(len);

	if (groups) {
		kolo_grid_text(&p->place, groups, len);
		fputs(groups, stdout);
	}
	free(groups);
	if (p->pipeline)
		printf("pipeline of %d stage%s with %d part%s each, %d micro-batch%s\n",
		       p->place.pipe_size, p->place.pipe_size > 1 ? "s" : "", p->chunks,
		       p->chunks > 1 ? "s" : "", p->micros, p->micros > 1 ? "es" : "");
}

static void print_data(const struct data *d, const struct bpe *bpe)
{
	const struct documents *docs = &d->documents;

	if (d->packing == NO_DOCUMENTS)
		printf("%zu %s of text, %zu for validation\n", d->len,
		       d->width == 1 && !bpe ? "bytes" : "tokens", d->len - d->ntrain);
	else
		printf("%zu documents of %zu tokens in %zu windows, %zu for validation\n", docs->n,
		       docs->ntokens, docs->nwindows, docs->nwindows - (size_t)d->windows);
	if (d->packing != NO_DOCUMENTS && d->heard < d->windows)
		printf("in %zu windows for training nothing counts; a batch of them alone is no update\n",
		       (size_t)(d->windows - d->heard));
}

static void print_beginning(const struct run *r)
{
	struct sizes whole = r->engine.sizes;
	size_t parameters = 0;
	int tensors = 0;

	whole.tensor_size = 1;
	for (int t = 0; t < tensor_count(&whole); t++)
		if (tensor_is_there(&whole, t)) {
			parameters += tensor_shape_of(&whole, t).n;
			tensors++;
		}
	printf("%zu parameters in %d tensors, %s, on %d rank%s; ", parameters, tensors,
	       kolo_type_name(r->engine.type), r->nranks, r->nranks > 1 ? "s" : "");
	print_data(&r->data, r->bpe);
	if (r->parallel.grid)
		print_grid(&r->parallel);
	if (r->kernels[0])
		puts(r->kernels);
	if (r->options->products == ONEDNN)
		puts("products of matrices by oneDNN");
	if (r->engine.device.zero)
		print_device(r->engine.device.zero, r->engine.device.copied);
	fflush(stdout);
}

static int do_run(struct run *r)
{
	int rc = open_run(r);

	if (rc == EXIT_GOOD && r->rank == 0)
		print_beginning(r);
	if (rc == EXIT_GOOD)
		rc = train(r);
	if (rc == EXIT_GOOD && r->options->sample)
		rc = write_sample(r);
	if (rc == EXIT_GOOD && r->options->export)
		rc = export_run(r);
	if (rc == EXIT_GOOD && r->options->report)
		rc = print_report(r);
	if (rc == EXIT_GOOD && r->options->timeline)
		rc = timeline_write(&r->timeline, r->comm, r->parallel.place.pipe);
	if (rc == EXIT_GOOD && r->picture)
		rc = draw_losses(r);
	if (rc == EXIT_GOOD && r->rank == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
		fprintf(stderr, "zerotrain: the output could not be written: is the disk full?\n");
		rc = EXIT_FAILED;
	}
	return rc;
}

int main(int argc, char **argv)
{
	struct options options;
	struct run run = { .options = &options };
	struct kolo_job job;
	int rc;

	options_parse(argc, argv, &options);
	if (kolo_job_get(&job) < 0) {
		fprintf(stderr, "zerotrain: looking for a job: %s\n", kolo_last_error());
		return EXIT_FAILED;
	}
	if (!job.launcher)
		return tool_become_ringrun("zerotrain", argc, argv, options.nranks, "share");
	choose_kernels(argv, run.kernels);
	use_products(options.products);
	if (kolo_comm_create(NULL, &run.comm) < 0) {
		fprintf(stderr, "zerotrain: joining the job: %s\n", kolo_last_error());
		return EXIT_FAILED;
	}
	run.rank = kolo_comm_rank(run.comm);
	run.nranks = kolo_comm_nranks(run.comm);
	rc = do_run(&run);
	close_run(&run);
	return rc;
}
