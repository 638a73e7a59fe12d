/* Sets up Kolo's engine from options and config, and gives the model its weights. */
#include "tools/zerotrain/setup/engine.h"
#include "tools/common/tool.h"
#include "tools/zerotrain/foreign/foreign.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int engine_failed(const struct kolo_comm *comm, const char *doing, int status)
{
	fprintf(stderr, "zerotrain: rank %d: %s: %s\n", kolo_comm_rank(comm), doing,
		kolo_last_error());
	return status == KOLO_EINVAL ? EXIT_WRONG : EXIT_FAILED;
}

/* ---- Settings -------------------------------------------------------------------------------- */

/* Matrices decay, gains and biases don't. */
enum { MATRICES, VECTORS, NGROUPS };

static double lr_of(const struct options *o)
{
	return isnan(o->lr) ? DEFAULT_LR : o->lr;
}

/* Without a config: AdamW with the settings that are usual for GPTs. If there are enough steps, the
 * rate has a warm-up and a cosine. */
static void choose_settings(const struct options *o, struct kolo_zero_config *config,
			    struct kolo_zero_group groups[NGROUPS])
{
	kolo_zero_config_init(config);
	kolo_zero_group_init(&groups[MATRICES], KOLO_ZERO_ADAMW);
	groups[MATRICES].lr = lr_of(o);
	groups[MATRICES].beta2 = 0.95;
	groups[MATRICES].weight_decay = 0.1;
	if (o->steps >= 40) {
		kolo_zero_schedule_init(&groups[MATRICES].schedule, KOLO_ZERO_WARMUP_COSINE);
		groups[MATRICES].schedule.warmup_steps = o->steps / 20;
		groups[MATRICES].schedule.total_steps = o->steps;
		groups[MATRICES].schedule.final_ratio = 0.1;
	}
	groups[VECTORS] = groups[MATRICES];
	groups[VECTORS].weight_decay = 0;
	config->groups = groups;
	config->ngroups = NGROUPS;
	config->clip = 1;
	if (o->type == KOLO_F16)
		config->loss_scale = 0;
}

static int read_settings(struct kolo_comm *comm, const struct options *o,
			 struct kolo_zero_settings **out)
{
	struct kolo_zero_model model;
	const char *note;
	int rc;

	kolo_zero_model_init(&model);
	/* To a config the ranks that share sequences are one. */
	model.nranks = kolo_comm_nranks(comm) / (o->spread_ranks > 1 ? o->spread_ranks : 1);
	model.tensor_size = o->tensor == UNSET ? 0 : o->tensor;
	model.pipe_size = o->pipe == UNSET ? 0 : o->pipe;
	model.hidden = (size_t)o->model.dim;
	model.micro_batch = (size_t)(o->batch == UNSET ? DEFAULT_BATCH : o->batch);
	model.accumulation = o->micros == UNSET ? 1 : o->micros;
	model.lr = lr_of(o);
	model.total_steps = o->steps;
	model.type = o->type == (enum kolo_type)UNSET ? KOLO_F32 : o->type;
	model.ngroups = NGROUPS;
	model.device = o->device.kind != HOST_MEMORY;
	if ((rc = kolo_zero_settings_read(o->config, &model, out)) < 0)
		return engine_failed(comm, "--config", rc);
	for (int i = 0; kolo_comm_rank(comm) == 0 && (note = kolo_zero_settings_note(*out, i)); i++)
		fprintf(stderr, "zerotrain: %s: %s\n", o->config, note);
	return EXIT_GOOD;
}

/* Does the schedule start from the group's rate, or go up to this one? */
static bool takes_rate(const struct kolo_zero_schedule *s, double lr)
{
	bool warms_up = s->type == KOLO_ZERO_WARMUP || s->type == KOLO_ZERO_WARMUP_DECAY;

	return s->type == KOLO_ZERO_CONSTANT || s->type == KOLO_ZERO_WARMUP_COSINE ||
	       (warms_up && s->max_lr == lr);
}

/* What the command line and the config both say must be the same. */
static int compare_settings(const struct options *o, const struct kolo_zero_settings *s)
{
	const struct kolo_zero_group *first = &s->config.groups[0];

	if (o->batch != UNSET && s->config.micro_batch != (size_t)o->batch)
		fprintf(stderr, "zerotrain: --batch %d, but %s says %zu: leave --batch out\n",
			o->batch, o->config, s->config.micro_batch);
	else if (o->type != (enum kolo_type)UNSET && s->type != o->type)
		fprintf(stderr,
			"zerotrain: --precision is %s, but %s says %s: leave --precision out\n",
			kolo_type_name(o->type), o->config, kolo_type_name(s->type));
	else if (o->micros != UNSET && s->config.accumulation != o->micros)
		fprintf(stderr, "zerotrain: --micro %d, but %s says %d: leave --micro out\n",
			o->micros, o->config, s->config.accumulation);
	else if (o->tensor != UNSET && s->tensor_size != o->tensor)
		fprintf(stderr, "zerotrain: --tp %d, but %s says %d: leave --tp out\n", o->tensor,
			o->config, s->tensor_size);
	else if (o->pipe != UNSET && s->pipe_size != o->pipe)
		fprintf(stderr, "zerotrain: --pp %d, but %s says %d: leave --pp out\n", o->pipe,
			o->config, s->pipe_size);
	else if (!isnan(o->lr) && first->lr != o->lr)
		fprintf(stderr, "zerotrain: --lr %g, but %s says %g: leave --lr out\n", o->lr,
			o->config, first->lr);
	else if (!isnan(o->lr) && !takes_rate(&first->schedule, o->lr))
		fprintf(stderr,
			"zerotrain: --lr %g, but %s has rates of its own in \"scheduler\" (%s): leave --lr out\n",
			o->lr, o->config, kolo_zero_schedule_name(first->schedule.type));
	else if (s->config.micro_batch > 1 << 16)
		fprintf(stderr, "zerotrain: %s: a micro-batch of %zu: must be at most %d\n",
			o->config, s->config.micro_batch, 1 << 16);
	else
		return EXIT_GOOD;
	return EXIT_WRONG;
}

static void keep_settings(const struct kolo_zero_settings *s, struct engine *e)
{
	e->type = s->type;
	e->batch = (int)s->config.micro_batch;
	e->steps_per_print = s->steps_per_print;
	e->wall_clock = s->wall_clock_breakdown;
	e->memory = s->memory_breakdown;
	snprintf(e->csv, sizeof(e->csv), "%s", s->csv_path ? s->csv_path : "");
	snprintf(e->jsonl, sizeof(e->jsonl), "%s", s->jsonl_path ? s->jsonl_path : "");
}

/* ---- Offload --------------------------------------------------------------------------------- */

/* The command line counts. */
static void choose_places(const struct options *o, struct kolo_zero_config *c)
{
	struct kolo_zero_offload *both[] = { &c->offload_optimizer, &c->offload_param };
	const int places[] = { o->offload_optimizer, o->offload_param };

	for (int i = 0; i < 2; i++) {
		if (places[i] != UNSET)
			both[i]->place = (enum kolo_zero_place)places[i];
		if (both[i]->place == KOLO_ZERO_ON_NVME && o->nvme_path)
			both[i]->path = o->nvme_path;
	}
	if (!isnan(o->offload_ratio))
		c->offload_optimizer.ratio = o->offload_ratio;
	if (o->threads != UNSET)
		c->threads = o->threads;
}

/* What a config and the command line say together, which neither is wrong in alone. */
static int check_places(const struct options *o, const struct kolo_zero_config *c)
{
	const struct kolo_zero_offload *optimizer = &c->offload_optimizer,
				       *param = &c->offload_param;
	bool files = optimizer->place == KOLO_ZERO_ON_NVME || param->place == KOLO_ZERO_ON_NVME;

	if (optimizer->place != KOLO_ZERO_ON_DEVICE && c->stage == 0)
		fprintf(stderr,
			"zerotrain: the optimizer cannot be offloaded at stage 0: use --stage 1, 2 or 3\n");
	else if (param->place != KOLO_ZERO_ON_DEVICE && c->stage != 3)
		fprintf(stderr,
			"zerotrain: parameters cannot be offloaded at stage %d: use --stage 3\n",
			c->stage);
	else if ((optimizer->place == KOLO_ZERO_ON_NVME && !optimizer->path) ||
		 (param->place == KOLO_ZERO_ON_NVME && !param->path))
		fprintf(stderr,
			"zerotrain: offload to nvme: needs --nvme-path DIR for its files\n");
	else if (o->nvme_path && !files)
		fprintf(stderr,
			"zerotrain: --nvme-path %s: needs --offload-optimizer nvme or --offload-param nvme\n",
			o->nvme_path);
	else if (!isnan(o->offload_ratio) && optimizer->place == KOLO_ZERO_ON_DEVICE)
		fprintf(stderr,
			"zerotrain: --offload-ratio %g: needs --offload-optimizer cpu or nvme\n",
			o->offload_ratio);
	else
		return EXIT_GOOD;
	return EXIT_USAGE;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* The engine's list of tensors: those that this rank has, in the model's order. */
static int list_tensors(struct engine *e, struct kolo_zero_tensor *tensors,
			struct tensor_shape *shapes, struct kolo_zero_division *divisions)
{
	const struct parallel *p = e->parallel;
	int n = 0;

	for (int t = 0; t < tensor_count(&e->sizes); t++) {
		struct tensor_shape *s = &shapes[n];

		e->numbers[t] = n;
		if (!parallel_has(p, &e->sizes, t))
			continue;
		*s = tensor_shape_of(&e->sizes, t);
		divisions[n] = (struct kolo_zero_division){ s->dim, p->place.tensor_size,
							    p->place.tensor, s->fused };
		tensors[n] = (struct kolo_zero_tensor){
			.name = s->name,
			.shape = { s->rows, s->columns },
			.ndims = s->columns ? 2 : 1,
			.type = e->type,
			.group = s->columns ? MATRICES : VECTORS,
			.gradient_type = p->pipeline ? KOLO_F32 : e->type,
			/* The whole tensors of a tensor group, and the head's of the last stage */
			.replicated = (!s->divided && p->place.tensor > 0) ||
				      (t == BYTES && !parallel_embeds(p)),
			/* The head's gradients and the embedding's (weights.c) */
			.summed = t == BYTES && p->pipeline,
			.division = s->divided && p->place.tensor_size > 1 ? &divisions[n] : NULL,
		};
		n++;
	}
	return n;
}

static int make_engine(struct kolo_zero_config *config, struct engine *e)
{
	struct kolo_comm *comm = parallel_data(e->parallel), *all = e->parallel->comm;
	size_t n = (size_t)tensor_count(&e->sizes);
	struct kolo_zero_tensor *tensors = calloc(n, sizeof(*tensors));
	struct tensor_shape *shapes = calloc(n, sizeof(*shapes));
	struct kolo_zero_division *divisions = calloc(n, sizeof(*divisions));
	int rc;

	e->numbers = calloc(n, sizeof(*e->numbers));
	config->world = kolo_comm_nranks(comm) < kolo_comm_nranks(all) ? all : NULL;
	rc = tensors && shapes && divisions && e->numbers
		     ? kolo_zero_create(comm, config, tensors,
					list_tensors(e, tensors, shapes, divisions), &e->zero)
		     : kolo_error_set(KOLO_ENOMEM, "a list of %zu tensors: out of memory", n);
	if (rc == 0 && kolo_comm_rank(all) == 0 && kolo_zero_warning(e->zero))
		fprintf(stderr, "zerotrain: %s\n", kolo_zero_warning(e->zero));
	free(divisions);
	free(shapes);
	free(tensors);
	return rc;
}

/* First values: drawn, or those of a model. */
static int fill_tensors(struct engine *e, const struct foreign *from)
{
	float part[1024];
	int rc = 0;

	for (int t = 0; rc == 0 && t < tensor_count(&e->sizes); t++) {
		size_t all = tensor_shape_of(&e->sizes, t).n;

		if (!parallel_has(e->parallel, &e->sizes, t))
			continue;
		for (size_t first = 0; rc == 0 && first < all; first += 1024) {
			size_t n = all - first < 1024 ? all - first : 1024;

			if (from->file)
				foreign_values(from, &e->sizes, t, first, n, part);
			else
				tensor_init(&e->sizes, t, first, n, part);
			rc = kolo_zero_set(e->zero, e->numbers[t], first, n, part);
		}
	}
	return rc;
}

/* Of a pipeline the engine sees one micro-step of all micro-batches. Of documents it counts tokens,
 * and the most there can be have the weight 1, which does not overflow in 16 bits. */
static void choose_batches(const struct options *o, struct kolo_zero_config *c, struct engine *e)
{
	if (!c->micro_batch)
		c->micro_batch = (size_t)e->batch;
	if (o->packing != NO_DOCUMENTS)
		c->micro_batch *= (size_t)o->model.context;
	if (!e->parallel->pipeline)
		return;
	c->micro_batch *= (size_t)e->parallel->micros;
	c->accumulation = 1;
	c->micros = e->parallel->micros;
}

/* The model's places in the tensor group and the context group. */
static void keep_place(struct engine *e)
{
	e->sizes.tensor_size = e->parallel->place.tensor_size;
	e->sizes.tensor_rank = e->parallel->place.tensor;
	e->sizes.context_size = e->parallel->nparts;
	e->sizes.context_rank = e->parallel->part;
}

/* Lamb's trust ratio is that of a whole tensor. */
static int check_optimizer(const struct kolo_zero_config *c, const struct engine *e)
{
	if (c->optimizer != KOLO_ZERO_LAMB || e->sizes.tensor_size == 1)
		return EXIT_GOOD;
	fprintf(stderr,
		"zerotrain: Lamb with --tp %d: its trust ratio is of a whole tensor, and a rank has a part: use another optimizer, or --tp 1\n",
		e->sizes.tensor_size);
	return EXIT_USAGE;
}

static int open_with(struct kolo_zero_config *config, const struct options *o, struct engine *e)
{
	struct kolo_comm *comm = e->parallel->comm;
	struct foreign from = { 0 };
	int rc;

	if (o->stage != UNSET)
		config->stage = o->stage;
	if (o->overlap != UNSET)
		config->overlap = o->overlap;
	choose_batches(o, config, e);
	choose_places(o, config);
	keep_place(e);
	e->sizes.spread = o->spread;
	e->sizes.serial = !config->overlap;
	if ((rc = check_places(o, config)) || (rc = check_optimizer(config, e)))
		return rc;
	config->device = e->device.zero;
	e->moves = config->device || config->offload_optimizer.place == KOLO_ZERO_ON_NVME ||
		   config->offload_param.place == KOLO_ZERO_ON_NVME;
	rc = o->import ? foreign_open(o->import, &e->sizes, &from) : EXIT_GOOD;
	if (rc == EXIT_GOOD && ((rc = make_engine(config, e)) < 0 || (rc = weights_open(e)) < 0 ||
				(rc = fill_tensors(e, &from)) < 0))
		rc = engine_failed(comm, "setting up the engine", rc);
	foreign_close(&from);
	return rc;
}

static struct grid_sizes grid_of(const struct kolo_zero_settings *s)
{
	return (struct grid_sizes){ s->tensor_size, s->pipe_size, s->config.accumulation };
}

/* Without a config. */
static int given_or_one(int value)
{
	return value == UNSET ? 1 : value;
}

static int open_from_config(struct kolo_comm *comm, const struct options *o,
			    struct parallel *parallel, struct engine *e)
{
	struct kolo_zero_settings *settings;
	int rc = read_settings(comm, o, &settings);

	if (rc)
		return rc;
	settings->groups[VECTORS].weight_decay = 0;
	rc = compare_settings(o, settings);
	if (rc == EXIT_GOOD)
		rc = parallel_open(comm, o, grid_of(settings), parallel);
	if (rc == EXIT_GOOD) {
		keep_settings(settings, e);
		rc = open_with(&settings->config, o, e);
	}
	kolo_zero_settings_destroy(settings);
	return rc;
}

int engine_open(struct kolo_comm *comm, const struct options *o, struct parallel *parallel,
		struct engine *e)
{
	struct kolo_zero_group groups[NGROUPS];
	struct kolo_zero_config config;
	struct grid_sizes sizes;
	int rc = device_open(&o->device, &e->device);

	if (rc < 0)
		return engine_failed(
			comm, o->device.kind == CUDA ? "--device cuda" : "--device arena", rc);
	e->parallel = parallel;
	if (o->config)
		return open_from_config(comm, o, parallel, e);
	sizes = (struct grid_sizes){ given_or_one(o->tensor), given_or_one(o->pipe),
				     given_or_one(o->micros) };
	if ((rc = parallel_open(comm, o, sizes, parallel)))
		return rc;
	choose_settings(o, &config, groups);
	e->type = o->type == (enum kolo_type)UNSET ? KOLO_F32 : o->type;
	e->batch = o->batch == UNSET ? DEFAULT_BATCH : o->batch;
	return open_with(&config, o, e);
}

void engine_close(struct engine *e)
{
	kolo_zero_destroy(e->zero);
	weights_close(e);
	free(e->numbers);
	device_close(&e->device);
}
