/* Configs of DeepSpeed's form: values, "auto", batch sizes, schedules, remarks, the resolved text,
 * and an engine from one. */
#include "kolo/kolo_zero_config.h"
#include "tests/lib/t.h"
#include "tests/zero/step/mlp.h"
#include "zero/create/check.h"

#include <stdio.h>
#include <string.h>

#define USERS_FILE "tests/zero/files/ds_config_zero2.json"

/* ---- Helpers --------------------------------------------------------------------------------- */

static struct kolo_zero_model model_of(int nranks)
{
	struct kolo_zero_model m;

	kolo_zero_model_init(&m);
	m.nranks = nranks;
	return m;
}

static struct kolo_zero_settings *parse_for(const struct kolo_zero_model *m, const char *text)
{
	struct kolo_zero_settings *s;

	CHECK(kolo_zero_settings_parse(text, m, &s) == 0);
	CHECK(s != NULL);
	return s;
}

/* For two ranks. */
static struct kolo_zero_settings *parse(const char *text)
{
	struct kolo_zero_model m = model_of(2);

	return parse_for(&m, text);
}

static bool has_note(const struct kolo_zero_settings *s, const char *text)
{
	const char *note;

	for (int i = 0; (note = kolo_zero_settings_note(s, i)); i++)
		if (strstr(note, text))
			return true;
	return false;
}

static bool same_offload(const struct kolo_zero_offload *a, const struct kolo_zero_offload *b)
{
	return a->place == b->place && a->ratio == b->ratio && a->pin == b->pin &&
	       a->buffers == b->buffers && a->buffer == b->buffer && a->in_host == b->in_host &&
	       !a->path == !b->path && (!a->path || strcmp(a->path, b->path) == 0);
}

/* The resolved text read again gives the same text, the same config and groups, and no error. */
static void check_fixpoint(const struct kolo_zero_settings *s, const struct kolo_zero_model *m)
{
	struct kolo_zero_model plain = model_of(m->nranks);
	struct kolo_zero_settings *again;

	plain.ngroups = m->ngroups;
	plain.device = m->device;
	again = parse_for(&plain, kolo_zero_settings_text(s));
	if (strcmp(kolo_zero_settings_text(again), kolo_zero_settings_text(s)) != 0)
		printf("# first:\n%s# second:\n%s", kolo_zero_settings_text(s),
		       kolo_zero_settings_text(again));
	CHECK(strcmp(kolo_zero_settings_text(again), kolo_zero_settings_text(s)) == 0);
	CHECK(zero_hash_config(&s->config) == zero_hash_config(&again->config));
	CHECK(same_offload(&s->config.offload_optimizer, &again->config.offload_optimizer) &&
	      same_offload(&s->config.offload_param, &again->config.offload_param) &&
	      s->config.io_block == again->config.io_block &&
	      s->config.io_depth == again->config.io_depth &&
	      s->config.order == again->config.order);
	CHECK(s->type == again->type && s->train_batch == again->train_batch &&
	      s->steps_per_print == again->steps_per_print && !s->csv_path == !again->csv_path);
	kolo_zero_settings_destroy(again);
}

/* ---- Values ---------------------------------------------------------------------------------- */

static void the_users_file_loads_unmodified(void **state)
{
	struct kolo_zero_model m = model_of(4);
	struct kolo_zero_settings *s;
	const struct kolo_zero_group *g;

	(void)state;
	m.micro_batch = 3;
	m.accumulation = 2;
	m.lr = 5e-5;
	m.beta2 = 0.95;
	m.weight_decay = 0.1;
	m.clip = 0.5;
	m.warmup_steps = 77;
	m.type = KOLO_F16;
	CHECK(kolo_zero_settings_read(USERS_FILE, &m, &s) == 0);
	g = &s->groups[0];
	CHECK(s->type == KOLO_F16 && s->config.stage == 2 && s->config.overlap == 1 &&
	      s->config.allgather == 1);
	CHECK(s->config.reduce_scatter == 1 && s->config.contiguous == 1);
	CHECK(s->config.reduce_bucket == 200000000 && s->config.gather_bucket == 200000000);
	CHECK(s->config.loss_scale == 0 && s->config.scaling.initial == 65536 &&
	      s->config.scaling.min == 1);
	CHECK(s->config.scaling.window == 1000 && s->config.scaling.hysteresis == 2);
	CHECK(s->config.clip == 0.5 && s->config.accumulation == 2 && s->config.micro_batch == 3);
	CHECK(s->train_batch == 24 && s->steps_per_print == 100000 &&
	      s->config.optimizer == KOLO_ZERO_ADAMW);
	CHECK(g->lr == 5e-5 && g->beta1 == 0.9 && g->beta2 == 0.95 && g->eps == 1e-8 &&
	      g->weight_decay == 0.1);
	CHECK(g->schedule.type == KOLO_ZERO_WARMUP && g->schedule.min_lr == 0 &&
	      g->schedule.max_lr == 5e-5);
	CHECK(g->schedule.warmup_steps == 77 && g->schedule.linear == 0);
	CHECK(s->config.groups == s->groups && s->config.ngroups == 1);
	CHECK(has_note(s, "bfloat16 (line 2): old name of bf16"));
	CHECK(has_note(s, "zero_optimization.offload_optimizer.device (line 33): already so"));
	CHECK(has_note(s, "zero_optimization.offload_optimizer.pin_memory (line 34): no effect"));
	CHECK(!kolo_zero_settings_note(s, 3) && !kolo_zero_settings_note(s, -1));
	check_fixpoint(s, &m);
	kolo_zero_settings_destroy(s);

	m.type = KOLO_BF16;
	CHECK(kolo_zero_settings_read(USERS_FILE, &m, &s) == 0);
	CHECK(s->type == KOLO_BF16 && s->config.loss_scale == 1);
	check_fixpoint(s, &m);
	kolo_zero_settings_destroy(s);

	m.device = 1;
	CHECK(kolo_zero_settings_read(USERS_FILE, &m, &s) == 0);
	CHECK(s->config.offload_optimizer.place == KOLO_ZERO_ON_HOST &&
	      s->config.offload_optimizer.pin == 1);
	CHECK(kolo_zero_settings_note(s, 0) && !kolo_zero_settings_note(s, 1)); /* bfloat16 alone */
	check_fixpoint(s, &m);
	kolo_zero_settings_destroy(s);
}

static void what_is_absent_has_the_presets(void **state)
{
	struct kolo_zero_settings *s = parse("{\"train_batch_size\": 6}");
	struct kolo_zero_config c;
	struct kolo_zero_group g;

	(void)state;
	kolo_zero_config_init(&c);
	kolo_zero_group_init(&g, KOLO_ZERO_ADAMW);
	CHECK(s->config.stage == 0 && s->config.clip == 1 && s->config.overlap == c.overlap);
	CHECK(s->config.reduce_bucket == c.reduce_bucket &&
	      s->config.gather_bucket == c.gather_bucket);
	CHECK(s->config.prefetch == c.prefetch && s->config.persistence == c.persistence);
	CHECK(s->config.max_live == c.max_live && s->config.reuse_distance == c.reuse_distance);
	CHECK(s->config.sub_group == c.sub_group && s->config.predivide == 0 &&
	      s->config.loss_scale == 1);
	CHECK(same_offload(&s->config.offload_optimizer, &c.offload_optimizer) &&
	      same_offload(&s->config.offload_param, &c.offload_param) &&
	      s->config.io_block == c.io_block && s->config.io_depth == c.io_depth);
	CHECK(s->type == KOLO_F32 && s->steps_per_print == 0 && !s->csv_path && !s->jsonl_path);
	CHECK(s->config.micro_batch == 3 && s->config.accumulation == 1);
	/* No optimizer: the model description's. */
	CHECK(s->groups->weight_decay == g.weight_decay &&
	      s->groups->schedule.type == KOLO_ZERO_CONSTANT);
	CHECK(!kolo_zero_settings_note(s, 0));
	kolo_zero_settings_destroy(s);
	/* With one: DeepSpeed's, which has no decay. */
	s = parse("{\"train_batch_size\": 6, \"optimizer\": {\"type\": \"lion\"}}");
	CHECK(s->config.optimizer == KOLO_ZERO_LION && s->groups->weight_decay == 0 &&
	      s->groups->lr == 1e-3 && s->groups->beta2 == 0.999);
	kolo_zero_settings_destroy(s);
}

static void each_optimizer_takes_its_parameters(void **state)
{
	struct kolo_zero_settings *s;

	(void)state;
	s = parse(
		"{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5,"
		"\"momentum\": 0.9, \"nesterov\": true, \"weight_decay\": 1e-4}}}");
	CHECK(s->config.optimizer == KOLO_ZERO_SGD && s->groups->lr == 0.5 &&
	      s->groups->momentum == 0.9 && s->groups->nesterov == 1 &&
	      s->groups->weight_decay == 1e-4);
	kolo_zero_settings_destroy(s);
	s = parse(
		"{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.8, 0.9]}}}");
	CHECK(s->config.optimizer == KOLO_ZERO_ADAMW && s->groups->beta1 == 0.8 &&
	      s->groups->beta2 == 0.9);
	CHECK(has_note(
		s, "optimizer.type (line 1): \"Adam\" is AdamW but with \"adam_w_mode\": false"));
	kolo_zero_settings_destroy(s);
	s = parse(
		"{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false,"
		"\"torch_adam\": true}}}");
	CHECK(s->config.optimizer == KOLO_ZERO_ADAM &&
	      has_note(s, "torch_adam (line 1): already so"));
	kolo_zero_settings_destroy(s);
	s = parse(
		"{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Adagrad\", \"params\": {\"lr_decay\": 0.1,"
		"\"initial_accumulator_value\": 2, \"eps\": 1e-9}}}");
	CHECK(s->config.optimizer == KOLO_ZERO_ADAGRAD && s->groups->lr_decay == 0.1 &&
	      s->groups->initial == 2 && s->groups->eps == 1e-9 && s->groups->lr == 1e-2);
	kolo_zero_settings_destroy(s);
	s = parse(
		"{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"LAMB\", \"params\": {\"bias_correction\": true}}}");
	CHECK(s->config.optimizer == KOLO_ZERO_LAMB && s->groups->eps == 1e-8);
	CHECK(has_note(s, "trust ratios have no bounds"));
	kolo_zero_settings_destroy(s);
}

static void each_schedule_takes_its_parameters(void **state)
{
	struct kolo_zero_model m = model_of(1);
	struct kolo_zero_settings *s;
	const struct kolo_zero_schedule *c;

	(void)state;
	m.ngroups = 2;
	s = parse_for(
		&m,
		"{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {"
		"\"warmup_min_lr\": [0.1, 0.2], \"warmup_max_lr\": 0.3, \"warmup_type\": \"linear\"}}}");
	CHECK(s->groups[0].schedule.min_lr == 0.1 && s->groups[1].schedule.min_lr == 0.2);
	CHECK(s->groups[0].schedule.max_lr == 0.3 && s->groups[1].schedule.max_lr == 0.3);
	CHECK(s->groups[1].schedule.linear == 1 && s->groups[1].schedule.warmup_steps == 1000);
	check_fixpoint(s, &m);
	kolo_zero_settings_destroy(s);
	s = parse_for(
		&m,
		"{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"OneCycle\", \"params\": {"
		"\"cycle_min_lr\": 0.1, \"cycle_max_lr\": 0.3, \"cycle_first_step_size\": 10, "
		"\"cycle_second_step_size\": null, \"cycle_first_stair_count\": 0, \"decay_lr_rate\": 0.5, "
		"\"decay_step_size\": 7, \"cycle_momentum\": false, \"decay_mom_rate\": 0.25}}}");
	c = &s->groups[1].schedule;
	CHECK(c->type == KOLO_ZERO_ONE_CYCLE && c->min_lr == 0.1 && c->max_lr == 0.3 &&
	      c->first_steps == 10);
	CHECK(c->second_steps == 0 && c->decay_rate == 0.5 && c->decay_steps == 7 &&
	      c->cycle_momentum == 0);
	CHECK(c->momentum_decay_rate == 0.25 && c->min_momentum == 0.8 && c->max_momentum == 0.9);
	check_fixpoint(s, &m);
	kolo_zero_settings_destroy(s);
	m.total_steps = 500;
	s = parse_for(
		&m,
		"{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {"
		"\"total_num_steps\": \"auto\", \"warmup_num_steps\": 1e2, \"cos_min_ratio\": 0.01}}}");
	c = &s->groups[0].schedule;
	CHECK(c->total_steps == 500 && c->warmup_steps == 100 && c->final_ratio == 0.01 &&
	      c->warmup_ratio == 0);
	check_fixpoint(s, &m);
	kolo_zero_settings_destroy(s);
	s = parse_for(
		&m,
		"{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"LRRangeTest\", \"params\": {"
		"\"lr_range_test_step_size\": 9, \"lr_range_test_staircase\": true}}}");
	c = &s->groups[0].schedule;
	CHECK(c->min_lr == 1e-3 && c->range_steps == 9 && c->range_rate == 1 && c->staircase == 1);
	check_fixpoint(s, &m);
	kolo_zero_settings_destroy(s);
}

static void auto_is_what_a_trainer_makes_of_it(void **state)
{
	static const char text[] =
		"{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 3,"
		" \"reduce_bucket_size\": \"auto\", \"stage3_prefetch_bucket_size\": \"auto\","
		" \"stage3_param_persistence_threshold\": \"auto\"}, \"bf16\": {\"enabled\": \"auto\"}}";
	struct kolo_zero_model m = model_of(2);
	struct kolo_zero_settings *s;

	(void)state;
	m.hidden = 1001;
	m.type = KOLO_BF16;
	s = parse_for(&m, text);
	CHECK(s->config.reduce_bucket == 1002001 && s->config.prefetch == 901800 &&
	      s->config.persistence == 10010);
	CHECK(s->type == KOLO_BF16 && !kolo_zero_settings_note(s, 0));
	check_fixpoint(s, &m);
	kolo_zero_settings_destroy(s);
}

static void two_batch_sizes_give_the_third(void **state)
{
	static const struct {
		const char *text;
		size_t train, micro;
		int accumulation;
	} cases[] = {
		{ "\"train_batch_size\": 24, \"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 4",
		  24, 2, 4 },
		{ "\"train_batch_size\": 24, \"train_micro_batch_size_per_gpu\": 4", 24, 4, 2 },
		{ "\"train_batch_size\": 24, \"gradient_accumulation_steps\": 2", 24, 4, 2 },
		{ "\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2", 24,
		  4, 2 },
		{ "\"train_batch_size\": 24", 24, 8, 1 },
		{ "\"train_micro_batch_size_per_gpu\": 5", 15, 5, 1 },
		{ "\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": 5, \"gradient_accumulation_steps\": \"auto\"",
		  15, 5, 1 },
		{ "\"train_batch_size\": 30, \"train_micro_batch_size_per_gpu\": 5, \"gradient_accumulation_steps\": \"auto\"",
		  30, 5, 2 },
	};
	struct kolo_zero_model m = model_of(3);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct kolo_zero_settings *s;
		char text[256];

		snprintf(text, sizeof(text), "{%s}", cases[i].text);
		s = parse_for(&m, text);
		CHECK(s->train_batch == cases[i].train && s->config.micro_batch == cases[i].micro &&
		      s->config.accumulation == cases[i].accumulation);
		check_fixpoint(s, &m);
		kolo_zero_settings_destroy(s);
	}
}

static void gradients_are_divided_where_the_keys_say(void **state)
{
	static const struct {
		const char *text;
		double predivide;
	} cases[] = {
		{ "", 0 },
		{ ", \"prescale_gradients\": true", 0 },
		{ ", \"prescale_gradients\": false", 1 },
		{ ", \"gradient_predivide_factor\": 2.5", 2.5 },
		{ ", \"prescale_gradients\": false, \"gradient_predivide_factor\": 4", 4 },
		{ ", \"prescale_gradients\": true, \"gradient_predivide_factor\": 2", 0 },
		{ ", \"prescale_gradients\": true, \"gradient_predivide_factor\": 1.0", 0 },
	};
	struct kolo_zero_model m = model_of(2);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct kolo_zero_settings *s;
		char text[160];

		snprintf(text, sizeof(text), "{\"train_batch_size\": 2%s}", cases[i].text);
		s = parse_for(&m, text);
		CHECK(s->config.predivide == cases[i].predivide);
		check_fixpoint(s, &m);
		kolo_zero_settings_destroy(s);
	}
}

static void the_loss_scale_stays_or_adapts(void **state)
{
	struct kolo_zero_settings *s;

	(void)state;
	s = parse("{\"train_batch_size\": 2, \"fp16\": {\"enabled\": true, \"loss_scale\": 128}}");
	CHECK(s->type == KOLO_F16 && s->config.loss_scale == 128);
	kolo_zero_settings_destroy(s);
	s = parse(
		"{\"train_batch_size\": 2, \"fp16\": {\"enabled\": true, \"initial_scale_power\": 3, \"hysteresis\": 4,"
		"\"loss_scale_window\": 5, \"min_loss_scale\": 0.5, \"consecutive_hysteresis\": true}}");
	CHECK(s->config.loss_scale == 0 && s->config.scaling.initial == 8 &&
	      s->config.scaling.hysteresis == 4 && s->config.scaling.window == 5 &&
	      s->config.scaling.min == 0.5 && s->config.scaling.consecutive == 1);
	kolo_zero_settings_destroy(s);
	s = parse("{\"train_batch_size\": 2, \"fp16\": {\"enabled\": false, \"loss_scale\": 0}}");
	CHECK(s->type == KOLO_F32 && s->config.loss_scale == 1);
	kolo_zero_settings_destroy(s);
}

static void comments_are_no_part_of_a_config(void **state)
{
	struct kolo_zero_settings *s;

	(void)state;
	s = parse(
		"# first\n{ // a \" quote\n  \"train_batch_size\": /* 3\n */ 4, # \"stage\": 9\n"
		"  \"csv_monitor\": {\"enabled\": true, \"output_path\": \"/a#b//c/\", \"job_name\": \"x/*y*/\\\"\"}}\n//");
	CHECK(s->train_batch == 4 && strcmp(s->csv_path, "/a#b//c/x/*y*/\".csv") == 0);
	CHECK(strcmp(s->jsonl_path, "/a#b//c/x/*y*/\".jsonl") == 0);
	kolo_zero_settings_destroy(s);
	s = parse("{\"train_batch_size\": 4, \"csv_monitor\": {\"enabled\": true}}");
	CHECK(strcmp(s->csv_path, "DeepSpeedJobName.csv") == 0);
	kolo_zero_settings_destroy(s);
}

/* What is offloaded with all that its sections may say, with a device and files. */
static void offloads_take_their_keys(void **state)
{
	static const char text[] =
		"{\"train_batch_size\": 2, \"zero_optimization\": {\"stage\": 3, \"offload_param\": {"
		"\"device\": \"nvme\", \"nvme_path\": \"/fast/\\u00e4\", \"buffer_count\": 6,"
		"\"max_in_cpu\": 1e9, \"pin_memory\": false}, \"offload_optimizer\": {\"device\": \"nvme\","
		"\"nvme_path\": \"state\", \"buffer_count\": 3, \"pin_memory\": true, \"ratio\": 0.3,"
		"\"fast_init\": false}}, \"aio\": {\"block_size\": 262144, \"queue_depth\": 32, \"use_gds\": false}}";
	struct kolo_zero_model m = model_of(2);

	(void)state;
	for (m.device = 0; m.device < 2; m.device++) {
		struct kolo_zero_settings *s = parse_for(&m, text);
		const struct kolo_zero_offload *o = &s->config.offload_optimizer,
					       *p = &s->config.offload_param;

		CHECK(p->place == KOLO_ZERO_ON_NVME && strcmp(p->path, "/fast/\xc3\xa4") == 0);
		CHECK(p->buffers == 6 && p->in_host == 1000000000 && p->pin == 0);
		CHECK(o->place == KOLO_ZERO_ON_NVME && strcmp(o->path, "state") == 0);
		CHECK(o->buffers == 3 && o->pin == 1 && o->ratio == 0.3);
		CHECK(s->config.io_block == 262144 && s->config.io_depth == 32 &&
		      !s->config.device);
		/* Without a device there is nothing to pin. */
		CHECK((kolo_zero_settings_note(s, 0) == NULL) == m.device);
		CHECK(m.device ||
		      has_note(s,
			       "offload_optimizer.pin_memory (line 1): no effect: an engine on"));
		check_fixpoint(s, &m);
		kolo_zero_settings_destroy(s);
	}
}

static void what_is_offloaded_to_the_cpu_leaves_a_device(void **state)
{
	static const char text[] =
		"{\"train_batch_size\": 2, \"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\":"
		"\"cpu\"}, \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.5, \"nvme_path\": null}}}";
	struct kolo_zero_model m = model_of(2);
	struct kolo_zero_settings *s;

	(void)state;
	m.device = 1;
	s = parse_for(&m, text);
	CHECK(s->config.offload_param.place == KOLO_ZERO_ON_HOST &&
	      s->config.offload_param.pin == 1 && s->config.offload_param.buffers == 5 &&
	      !s->config.offload_param.path);
	CHECK(s->config.offload_optimizer.place == KOLO_ZERO_ON_HOST &&
	      s->config.offload_optimizer.buffers == 4 && s->config.offload_optimizer.ratio == 0.5);
	CHECK(!kolo_zero_settings_note(s, 0));
	CHECK(strstr(kolo_zero_settings_text(s), "\"pin_memory\": true") &&
	      !strstr(kolo_zero_settings_text(s), "max_in_cpu") &&
	      !strstr(kolo_zero_settings_text(s), "aio"));
	check_fixpoint(s, &m);
	kolo_zero_settings_destroy(s);
	m.device = 0;
	s = parse_for(&m, text);
	CHECK(has_note(
		      s,
		      "offload_param.device (line 1): already so: the engine and its state are in host") &&
	      has_note(s, "offload_optimizer.device (line 1): already so") &&
	      has_note(s, "offload_optimizer.ratio (line 1): no effect") &&
	      !kolo_zero_settings_note(s, 3));
	CHECK(!strstr(kolo_zero_settings_text(s), "pin_memory"));
	check_fixpoint(s, &m);
	kolo_zero_settings_destroy(s);
}

static void old_names_of_offloads_are_these_offloads(void **state)
{
	static const char text[] =
		"{\"train_batch_size\": 2, \"zero_optimization\": {\"stage\": 3,\n\"cpu_offload\": true, %s"
		"\"cpu_offload_use_pin_memory\": false}}";
	struct kolo_zero_model m = model_of(2);
	struct kolo_zero_settings *s;
	char both[256], one[256];

	(void)state;
	m.device = 1;
	snprintf(both, sizeof(both), text, "\"cpu_offload_param\": true, ");
	s = parse_for(&m, both);
	CHECK(s->config.offload_optimizer.place == KOLO_ZERO_ON_HOST &&
	      s->config.offload_optimizer.pin == 0);
	CHECK(s->config.offload_param.place == KOLO_ZERO_ON_HOST &&
	      s->config.offload_param.pin == 0);
	CHECK(has_note(s, "cpu_offload (line 2): an old form of offload_optimizer.device") &&
	      has_note(s, "cpu_offload_param (line 2): an old form of offload_param.device") &&
	      has_note(s, "cpu_offload_use_pin_memory (line 2): an old form of pin_memory") &&
	      !kolo_zero_settings_note(s, 3));
	CHECK(!strstr(kolo_zero_settings_text(s), "cpu_offload"));
	check_fixpoint(s, &m);
	kolo_zero_settings_destroy(s);
	/* The section that goes beside the old flag has a pin_memory of its own. */
	snprintf(one, sizeof(one), text, "\"offload_param\": {\"device\": \"cpu\"}, ");
	s = parse_for(&m, one);
	CHECK(s->config.offload_optimizer.pin == 0 && s->config.offload_param.pin == 1);
	check_fixpoint(s, &m);
	kolo_zero_settings_destroy(s);
}

static void keys_without_effect_get_a_remark(void **state)
{
	struct kolo_zero_settings *s;

	(void)state;
	s = parse(
		"{\"train_batch_size\": 2,\n\"zero_optimization\": {\"stage\": 1, \"round_robin_gradients\": true,\n"
		"\"stage3_max_live_parameters\": 1e9, \"cpu_offload\": true,\n\"offload_param\": {\"device\": \"none\","
		"\"buffer_count\": 5, \"buffer_size\": 1e8, \"pin_memory\": true, \"max_in_cpu\": 1e9}},\n"
		"\"aio\": {\"queue_depth\": 8, \"block_size\": 4096, \"single_submit\": true}}");
	CHECK(has_note(s, "zero_optimization.round_robin_gradients (line 2): already so"));
	CHECK(has_note(
		s,
		"zero_optimization.stage3_max_live_parameters (line 3): no effect but at stage 3"));
	CHECK(has_note(
		s,
		"zero_optimization.cpu_offload (line 3): an old form of offload_optimizer.device"));
	CHECK(has_note(s, "zero_optimization.cpu_offload (line 3): already so"));
	CHECK(has_note(s, "offload_param.buffer_count (line 4): no effect: nothing is offloaded"));
	CHECK(has_note(s,
		       "offload_param.buffer_size (line 4): no effect: a buffer holds any shard"));
	CHECK(has_note(s, "offload_param.pin_memory (line 4): no effect: nothing is offloaded"));
	CHECK(has_note(s, "offload_param.max_in_cpu (line 4): no effect: nothing is kept on NVMe"));
	CHECK(has_note(s, "aio.block_size (line 5): no effect: nothing is kept on NVMe"));
	CHECK(has_note(s, "aio.queue_depth (line 5): no effect") &&
	      has_note(s, "aio.single_submit (line 5): "));
	kolo_zero_settings_destroy(s);
	s = parse("{\"train_batch_size\": 2, \"zero_optimization\": true}");
	CHECK(s->config.stage == 1 &&
	      has_note(s, "zero_optimization (line 1): an old form: \"stage\": 1"));
	kolo_zero_settings_destroy(s);
	s = parse(
		"{\"train_batch_size\": 2, \"zero_optimization\": {\"offload_param\": null, \"overlap_comm\": null},"
		"\"tensorboard\": {\"enabled\": false}, \"amp\": {\"enabled\": false, \"opt_level\": \"O2\"},"
		"\"autotuning\": {}, \"scheduler\": null}");
	CHECK(!kolo_zero_settings_note(s, 0) && s->config.overlap == 1);
	kolo_zero_settings_destroy(s);
}

/* ---- An engine ------------------------------------------------------------------------------- */

static void train_from_text(struct t_rank *t)
{
	struct kolo_zero_tensor tensors[MLP_TENSORS];
	struct kolo_zero_model m = model_of(t->nranks);
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_settings *s = parse_for(&m, t->arg);
	struct kolo_zero_result result;
	double first = 0;
	struct kolo_zero *zero;

	mlp_tensors(tensors, s->type);
	CHECK(kolo_zero_create(comm, &s->config, tensors, MLP_TENSORS, &zero) == 0);
	kolo_zero_settings_destroy(s); /* the engine has copies */
	mlp_init(zero);
	for (int step = 0; step < 2; step++) {
		CHECK(mlp_micro_step(zero, tensors[0].type, 4 * (size_t)t->rank, 4,
				     (float)kolo_zero_loss_scale(zero), 0) == 0);
		CHECK(kolo_zero_step(zero, &result) == 0 && result.updated && result.samples == 8);
		CHECK(step == 0 || result.loss < first);
		first = result.loss;
	}
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void an_engine_trains_from_a_text(void **state)
{
	(void)state;
	t_threads(
		2, train_from_text,
		"{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 1500},"
		" \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}}");
	t_threads(
		2, train_from_text,
		"{\"train_micro_batch_size_per_gpu\": 4, \"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 2},"
		" \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9}}}");
	t_threads(
		2, train_from_text,
		"{\"train_batch_size\": 8, \"fp16\": {\"enabled\": true, \"initial_scale_power\": 8, \"loss_scale_window\": 1},"
		" \"prescale_gradients\": false, \"zero_optimization\": {\"stage\": 1}, \"scheduler\": {\"type\": \"OneCycle\","
		" \"params\": {\"cycle_min_lr\": 0.01, \"cycle_max_lr\": 0.02, \"cycle_first_step_size\": 2}}}");
}

/* ---- Grids ----------------------------------------------------------------------------------- */

static void check_grid(const struct kolo_zero_model *m, const char *text, int tensor, int pipe,
		       size_t train)
{
	struct kolo_zero_settings *s = parse_for(m, text);

	CHECK(s->tensor_size == tensor && s->pipe_size == pipe);
	CHECK(s->train_batch == train);
	check_fixpoint(s, m);
	kolo_zero_settings_destroy(s);
}

static void sizes_of_a_grid_come_from_the_file_or_the_program(void **state)
{
	struct kolo_zero_model m = model_of(8);
	struct kolo_zero_settings *s;

	(void)state;
	check_grid(&m, "{\"train_micro_batch_size_per_gpu\": 2}", 1, 1, 16);
	check_grid(&m, "{\"train_micro_batch_size_per_gpu\": 2, \"pipeline\": {\"stages\": 2}}", 1,
		   2, 8);
	check_grid(&m,
		   "{\"train_micro_batch_size_per_gpu\": 2, \"pipeline\": {\"stages\": 2},"
		   " \"tensor_parallel\": {\"autotp_size\": 4}}",
		   4, 2, 2);
	m.tensor_size = 2;
	check_grid(&m, "{\"train_micro_batch_size_per_gpu\": 2}", 2, 1, 8);
	/* The file counts; 0 is DeepSpeed's way to say 1, and "auto" what the program says. */
	check_grid(
		&m,
		"{\"train_micro_batch_size_per_gpu\": 2, \"tensor_parallel\": {\"autotp_size\": 0}}",
		1, 1, 16);
	check_grid(
		&m,
		"{\"train_micro_batch_size_per_gpu\": 2, \"tensor_parallel\": {\"autotp_size\": \"auto\"}}",
		2, 1, 8);
	CHECK(kolo_zero_settings_parse(
		      "{\"train_batch_size\": 8,\n\"tensor_parallel\": {\"autotp_size\": 3}}", &m,
		      &s) == KOLO_EINVAL);
	CHECK(strstr(
		kolo_last_error(),
		"config:2:36: tensor_parallel.autotp_size makes a grid of tensor 3 x pipe 1, and there are 8 ranks"));
	m.tensor_size = 5;
	CHECK(kolo_zero_settings_parse("{\"train_batch_size\": 8}", &m, &s) == KOLO_EINVAL);
	CHECK(strstr(kolo_last_error(), "model.tensor_size 5 and pipe_size 1 on 8 ranks"));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(sizes_of_a_grid_come_from_the_file_or_the_program),
	cmocka_unit_test(the_users_file_loads_unmodified),
	cmocka_unit_test(what_is_absent_has_the_presets),
	cmocka_unit_test(each_optimizer_takes_its_parameters),
	cmocka_unit_test(each_schedule_takes_its_parameters),
	cmocka_unit_test(auto_is_what_a_trainer_makes_of_it),
	cmocka_unit_test(two_batch_sizes_give_the_third),
	cmocka_unit_test(gradients_are_divided_where_the_keys_say),
	cmocka_unit_test(the_loss_scale_stays_or_adapts),
	cmocka_unit_test(comments_are_no_part_of_a_config),
	cmocka_unit_test(offloads_take_their_keys),
	cmocka_unit_test(what_is_offloaded_to_the_cpu_leaves_a_device),
	cmocka_unit_test(old_names_of_offloads_are_these_offloads),
	cmocka_unit_test(keys_without_effect_get_a_remark),
	cmocka_unit_test(an_engine_trains_from_a_text),
};

T_MAIN(tests)
