/* The rules between keys. zero_rules_begin sets presets before the keys are taken. zero_rules_end
 * calls the rules after that: batch sizes, precision, division of gradients, optimizer, schedule,
 * offload, files. A new rule is a function and an entry in its list. */
#include "zero/config/rules.h"

#include "zero/config/config.h"
#include "zero/config/keys.h"
#include "zero/config/source.h"
#include "zero/config/values.h"
#include "zero/optim/optimizer.h"
#include "zero/optim/scaler.h"
#include "zero/optim/schedule.h"
#include "zero/optimizers/list.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Before ---------------------------------------------------------------------------------- */

/* If the config names an optimizer, its presets are DeepSpeed's, which sometimes differ from
 * torch's. Otherwise the model description is the preset. */
static void init_group(const struct zero_reading *r, struct kolo_zero_group *g)
{
	enum kolo_zero_optimizer type = (enum kolo_zero_optimizer)r->out->optimizer;
	const struct kolo_zero_model *m = r->model;

	*g = zero_optimizer_row(type)->presets;
	if (!zero_given_of(r, "optimizer.type")->value) {
		g->lr = m->lr;
		g->beta1 = m->beta1;
		g->beta2 = m->beta2;
		g->eps = m->eps;
		g->weight_decay = m->weight_decay;
	}
}

void zero_rules_begin(const struct zero_reading *r)
{
	struct zero_settings *s = r->out;

	kolo_zero_config_init(&s->shown.config);
	s->shown.config.clip = 1;
	s->shown.config.scaling =
		(struct kolo_zero_scaling){ .min = 1, .window = 1000, .hysteresis = 2 };
	s->scale_power = 16;
	s->adam_w_mode = s->wire = s->order = s->prescale = s->old_pin = s->tensor = -1;
	for (int i = 0; i < r->model->ngroups; i++) {
		struct kolo_zero_group *g = &s->shown.groups[i];

		init_group(r, g);
		kolo_zero_schedule_init(&g->schedule, (enum kolo_zero_schedule_type)s->schedule);
		if (s->schedule == KOLO_ZERO_WARMUP_DECAY || s->schedule == KOLO_ZERO_WARMUP_COSINE)
			g->schedule.total_steps = 0;
	}
}

/* ---- Batch sizes ----------------------------------------------------------------------------- */

/* No batch size was given, or it is "auto" and unknown. */
static int refuse_no_batch(const struct zero_reading *r)
{
	static const char *const paths[] = { "train_micro_batch_size_per_gpu", "train_batch_size" };
	static const char *const fields[] = { "micro_batch", "train_batch" };

	for (int i = 0; i < 2; i++)
		if (zero_given_of(r, paths[i])->value)
			return zero_refuse_value(
				r, paths[i],
				"is \"auto\", and %s of the model description is unknown: set it, or give a number",
				fields[i]);
	return kolo_error_set(KOLO_EINVAL,
			      "%.200s:1:1: train_batch_size is missing: want it, or %s, or both",
			      r->name, paths[0]);
}

/* Ranks with the same tensors. */
static size_t data_ranks(const struct zero_reading *r)
{
	const struct kolo_zero_settings *s = &r->out->shown;

	return (size_t)(r->model->nranks / (s->tensor_size * s->pipe_size));
}

static int refuse_grid(const struct zero_reading *r)
{
	const char *tensor = "tensor_parallel.autotp_size", *pipe = "pipeline.stages";
	const struct kolo_zero_settings *s = &r->out->shown;
	bool given = zero_given_of(r, tensor)->value || zero_given_of(r, pipe)->value;
	static const char text[] =
		"makes a grid of tensor %d x pipe %d, and there are %d ranks: want a multiple of both";

	if (given)
		return zero_refuse_value(r, zero_given_of(r, tensor)->value ? tensor : pipe, text,
					 s->tensor_size, s->pipe_size, r->model->nranks);
	return kolo_error_set(
		KOLO_EINVAL,
		"model.tensor_size %d and pipe_size %d on %d ranks: want a multiple of both",
		s->tensor_size, s->pipe_size, r->model->nranks);
}

/* The sizes of the grid: 0 and 1 are the same. Those of the program are shown, too. */
static int decide_grid(const struct zero_reading *r)
{
	struct zero_settings *s = r->out;
	int tensor = s->tensor >= 0 ? s->tensor : r->model->tensor_size;
	int pipe = s->pipe > 0 ? s->pipe : r->model->pipe_size;

	s->shown.tensor_size = tensor > 1 ? tensor : 1;
	s->shown.pipe_size = pipe > 1 ? pipe : 1;
	if (tensor > 1)
		s->tensor = tensor;
	if (pipe > 1)
		s->pipe = pipe;
	if (r->model->nranks % ((int64_t)s->shown.tensor_size * s->shown.pipe_size))
		return refuse_grid(r);
	return 0;
}

/* Derives the batch size that is missing from the other two. A batch alone is one micro-step. */
static int derive_batch(const struct zero_reading *r)
{
	const char *at = "train_batch_size";
	struct zero_settings *s = r->out;
	size_t n = data_ranks(r), product;

	if (!s->train && !s->micro)
		return refuse_no_batch(r);
	if (!s->accumulation)
		s->accumulation = s->train && s->micro ? s->train / s->micro / n : 1;
	if (!s->micro)
		s->micro = s->train / s->accumulation / n;
	if (!zero_given_of(r, at)->value)
		at = "train_micro_batch_size_per_gpu";
	if (__builtin_mul_overflow(s->micro, s->accumulation, &product) ||
	    __builtin_mul_overflow(product, n, &product) || product >> 53 ||
	    s->accumulation > INT_MAX)
		return zero_refuse_value(r, at,
					 "gives a batch of more than 2^53 samples: want less");
	if (!s->train)
		s->train = product;
	if (s->train != product || !product)
		return zero_refuse_value(
			r, at,
			"makes the batch %zu, and micro batch %zu * accumulation %zu * %zu ranks is %zu: want both equal",
			s->train, s->micro, s->accumulation, n, product);
	s->shown.train_batch = s->train;
	s->shown.config.micro_batch = s->micro;
	s->shown.config.accumulation = (int)s->accumulation;
	return 0;
}

/* ---- Precision ------------------------------------------------------------------------------- */

static int decide_precision(const struct zero_reading *r)
{
	struct zero_settings *s = r->out;
	struct kolo_zero_config *c = &s->shown.config;

	if (s->fp16 && s->bf16)
		return zero_refuse_value(r, "fp16.enabled",
					 "is on, and that of bf16 too: want one of them");
	s->shown.type = s->fp16 ? KOLO_F16 : s->bf16 ? KOLO_BF16 : KOLO_F32;
	c->loss_scale = s->fp16 ? s->loss_scale : 1;
	c->scaling.initial = 1;
	for (int i = 0; i < s->scale_power; i++)
		c->scaling.initial *= 2;
	if (s->shown.type == KOLO_F32 && r->model->type != KOLO_F32)
		return zero_note(
			r, "fp16.enabled",
			"neither it nor bf16 is enabled: tensors are f32, other than the model description says");
	return 0;
}

/* Gradients are sent in the type of their tensors. */
static int check_wire(const struct zero_reading *r)
{
	static const enum kolo_type types[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };
	const struct zero_settings *s = r->out;

	if (s->wire < 0 || types[s->wire] == s->shown.type)
		return 0;
	return zero_refuse_value(
		r, "communication_data_type",
		"is %s, and tensors are %s: gradients travel in the type of their tensors: want null",
		kolo_type_name(types[s->wire]), kolo_type_name(s->shown.type));
}

/* Gradients are divided before they are added. The default divisor is the number of ranks. */
static int decide_division(const struct zero_reading *r)
{
	struct zero_settings *s = r->out;

	if (s->prescale == 1 && s->predivide != 0 && s->predivide != 1 &&
	    s->predivide != (double)data_ranks(r))
		return zero_refuse_value(
			r, "gradient_predivide_factor",
			"is %.15g, and prescale_gradients divides by the %zu ranks: want one of the keys",
			s->predivide, data_ranks(r));
	if (s->prescale == 0 && s->predivide == 0)
		s->predivide = 1;
	if (s->prescale < 0)
		s->prescale = s->predivide == 0;
	s->shown.config.predivide = s->prescale ? 0 : s->predivide;
	return 0;
}

/* ---- Optimizer and schedule ------------------------------------------------------------------ */

static int decide_optimizer(const struct zero_reading *r)
{
	struct zero_settings *s = r->out;
	const struct kolo_zero_group *g = s->shown.groups;
	const char *note;
	int rc = 0;

	if (s->optimizer == KOLO_ZERO_ADAMW && s->adam_w_mode == 0)
		return zero_refuse_value(
			r, "optimizer.params.adam_w_mode",
			"is false, and the type is AdamW: want \"type\": \"Adam\"");
	if (s->optimizer == KOLO_ZERO_ADAM && s->adam_w_mode != 0) {
		s->optimizer = KOLO_ZERO_ADAMW;
		rc = zero_note(r, "optimizer.type",
			       "\"Adam\" is AdamW but with \"adam_w_mode\": false");
	}
	note = zero_optimizer_row((enum kolo_zero_optimizer)s->optimizer)->note;
	if (note)
		rc = zero_note(r, "optimizer.type", note);
	if (g->nesterov && (g->momentum == 0 || g->dampening != 0))
		return zero_refuse_value(
			r, "optimizer.params.nesterov",
			"is true: want a momentum above 0, and no dampening, with it");
	s->shown.config.optimizer = (enum kolo_zero_optimizer)s->optimizer;
	return rc;
}

static int refuse_missing(const struct zero_reading *r, const char *path)
{
	const struct zero_given *params = zero_given_of(r, "scheduler.params");
	char want[ZERO_NAMES];

	return zero_refuse_value(r, params->value ? "scheduler.params" : "scheduler",
				 "has no %s: want %s", strrchr(path, '.') + 1,
				 zero_want(zero_keys[zero_key_find(path)].range, want));
}

static int check_total(const struct zero_reading *r)
{
	const struct kolo_zero_schedule *s = &r->out->shown.groups->schedule;

	if (s->total_steps == 0)
		return refuse_missing(r, "scheduler.params.total_num_steps");
	if (s->total_steps > s->warmup_steps)
		return 0;
	return zero_refuse_value(
		r, "scheduler.params.total_num_steps",
		"makes the total %ld, and the warm-up takes %ld: want more than that",
		s->total_steps, s->warmup_steps);
}

static int decide_schedule(const struct zero_reading *r)
{
	static const char *const cycle[] = { "scheduler.params.cycle_min_lr",
					     "scheduler.params.cycle_max_lr" };
	struct zero_settings *s = r->out;
	int type = s->schedule;
	bool own_max = zero_given_of(r, "scheduler.params.warmup_max_lr")->value;

	for (int i = 0; i < r->model->ngroups && !own_max; i++) {
		struct kolo_zero_group *g = &s->shown.groups[i];

		if (type == KOLO_ZERO_WARMUP || type == KOLO_ZERO_WARMUP_DECAY)
			g->schedule.max_lr = g->lr;
	}
	for (int i = 0; i < 2 && type == KOLO_ZERO_ONE_CYCLE; i++)
		if (!zero_given_of(r, cycle[i])->value)
			return refuse_missing(r, cycle[i]);
	if (type == KOLO_ZERO_WARMUP_DECAY || type == KOLO_ZERO_WARMUP_COSINE)
		return check_total(r);
	return 0;
}

/* ---- Offload --------------------------------------------------------------------------------- */

/* What may be offloaded: its keys, and the least stage at which there is something to offload. */
static const struct kind {
	const char *device, *old, *path;
	int least;
	const char *why;
} optimizer_state = {
	.device = "zero_optimization.offload_optimizer.device",
	.old = "zero_optimization.cpu_offload",
	.path = "zero_optimization.offload_optimizer.nvme_path",
	.least = 1,
	.why = "want stage 1, 2 or 3: what is offloaded is a rank's shard of the optimizer's state",
};
static const struct kind parameters = {
	.device = "zero_optimization.offload_param.device",
	.old = "zero_optimization.cpu_offload_param",
	.path = "zero_optimization.offload_param.nvme_path",
	.least = 3,
	.why = "want stage 3: below it every rank has whole parameters on its device",
};

static int decide_one(const struct zero_reading *r, const struct kind *kind, int place,
		      const char *path, struct kolo_zero_offload *out)
{
	const struct zero_given *old = zero_given_of(r, kind->old),
				*g = old->value ? old : zero_given_of(r, kind->device);
	int stage = r->out->shown.config.stage;
	char shown[ZERO_SHOWN];

	out->place = (enum kolo_zero_place)place;
	if (place == KOLO_ZERO_ON_DEVICE)
		return 0;
	if (stage < kind->least)
		return zero_refuse_value(r, g->path, "is %s, and the stage is %d: %s",
					 zero_show(g->value, shown), stage, kind->why);
	if (old->value && r->out->old_pin >= 0)
		out->pin = r->out->old_pin;
	if (place == KOLO_ZERO_ON_HOST)
		return r->model->device
			       ? 0
			       : zero_note(
					 r, g->path,
					 "already so: the engine and its state are in host memory");
	if (!path)
		return zero_refuse_value(
			r, g->path,
			"is \"nvme\", and there is no nvme_path: want one, a directory for the files");
	if (!*path)
		return zero_refuse_value(r, kind->path, "is \"\": want a directory for the files");
	out->path = path;
	return 0;
}

static int decide_offload(const struct zero_reading *r)
{
	struct zero_settings *s = r->out;
	struct kolo_zero_config *c = &s->shown.config;
	int rc = decide_one(r, &optimizer_state, s->optimizer_place, s->optimizer_path,
			    &c->offload_optimizer);

	return rc == 0 ? decide_one(r, &parameters, s->param_place, s->param_path,
				    &c->offload_param)
		       : rc;
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Returns FOLDER/JOBSUFFIX, in memory that the caller frees. An empty folder is the current one. */
static char *join_file(const char *folder, const char *job, const char *suffix)
{
	size_t len = strlen(folder), room = len + strlen(job) + strlen(suffix) + 2;
	char *out = malloc(room);

	if (out)
		snprintf(out, room, "%s%s%s%s", folder, len && folder[len - 1] != '/' ? "/" : "",
			 job, suffix);
	return out;
}

static int decide_files(const struct zero_reading *r)
{
	struct zero_settings *s = r->out;
	const char *folder = s->csv_folder ? s->csv_folder : "",
		   *job = s->csv_job ? s->csv_job : "DeepSpeedJobName";

	if (!s->csv)
		return 0;
	s->shown.csv_path = s->csv_path = join_file(folder, job, ".csv");
	s->shown.jsonl_path = s->jsonl_path = join_file(folder, job, ".jsonl");
	if (s->csv_path && s->jsonl_path)
		return 0;
	return kolo_error_set(KOLO_ENOMEM, "%.200s: csv_monitor: out of memory", r->name);
}

/* ---- All together ---------------------------------------------------------------------------- */

/* Runs the engine's own checks. An error names the section that it is about. */
static int check_as_the_engine_does(const struct zero_reading *r)
{
	const struct kolo_zero_settings *shown = &r->out->shown;
	char text[256];
	const char *section = "fp16";
	int rc = zero_scaler_check(&shown->config);

	for (int i = 0; rc == 0 && i < shown->config.ngroups; i++) {
		section = "scheduler";
		rc = zero_schedule_check(&shown->groups[i].schedule);
		if (rc == 0) {
			section = "optimizer";
			rc = zero_optimizer_check(shown->config.optimizer, &shown->groups[i], i);
		}
	}
	if (rc == 0)
		return 0;
	snprintf(text, sizeof(text), "%s", kolo_last_error());
	return zero_refuse_value(r, section, "can't be: %s", text);
}

int zero_rules_end(const struct zero_reading *r)
{
	static int (*const rules[])(const struct zero_reading *) = {
		decide_grid,      derive_batch,    decide_precision, check_wire,   decide_division,
		decide_optimizer, decide_schedule, decide_offload,   decide_files,
	};
	struct kolo_zero_settings *shown = &r->out->shown;
	int rc = 0;

	shown->config.groups = shown->groups;
	shown->config.order = r->out->order < 0 ? NULL : zero_orders[r->out->order];
	shown->config.ngroups = r->model->ngroups;
	for (size_t i = 0; rc == 0 && i < sizeof(rules) / sizeof(rules[0]); i++)
		rc = rules[i](r);
	return rc == 0 ? check_as_the_engine_does(r) : rc;
}
