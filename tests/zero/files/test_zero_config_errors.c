/* Configs of DeepSpeed's form that are wrong, told with their place; files; memory that runs out;
 * random changes. */
#include "kolo/kolo_zero_config.h"
#include "tests/lib/failing.h"
#include "tests/lib/t.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USERS_FILE "tests/zero/files/ds_config_zero2.json"

/* ---- Allocations that fail ------------------------------------------------------------------- */

/* jansson writes beyond the buffer of a token that could not grow, from 16 bytes to twice as much
 * and so on: that does not fail. */
static void *allocate_for_jansson(size_t len)
{
	void *p = len == 32 || len == 64 ? __real_malloc(len) : NULL;

	t_live += p != NULL;
	return p ? p : __wrap_malloc(len);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static struct kolo_zero_model model_of(int nranks)
{
	struct kolo_zero_model m;

	kolo_zero_model_init(&m);
	m.nranks = nranks;
	return m;
}

static void check_refused(const char *text, const struct kolo_zero_model *m, const char *fragment)
{
	struct kolo_zero_settings *s = (void *)text;
	int rc = kolo_zero_settings_parse(text, m, &s);
	const char *said = kolo_last_error();

	if (rc != KOLO_EINVAL || s || !strstr(said, fragment) || strlen(said) > 500)
		printf("# %s\n#   gives %d: %s\n#   and not: %s\n", text, rc, said, fragment);
	CHECK(rc == KOLO_EINVAL && !s && strstr(said, fragment) && strlen(said) <= 500);
}

/* Each says where, which key, what it is and what to do. B: the batch, which all need. */
#define B "{\"train_batch_size\": 2,\n"
static const struct {
	const char *text, *says;
} broken[] = {
	{ "", "config:1:0: '[' or '{' expected near end of file" },
	{ "[]", "config:1:1: a list: want an object" },
	{ "7", "config:1:1: '[' or '{' expected near '7'" },
	{ "{\"train_batch_size\": 2", "config:1:22: '}' expected near end of file" },
	{ "{\"train_batch_size\": 2,}", "config:1:24: string or '}' expected near '}'" },
	{ "{\n/* x", "config:2:1: a comment without end: want */" },
	{ "{} {}", "config:1:4: end of file expected near '{'" },
	{ B "\"train_batch_size\": 2}",
	  "config:2:1: train_batch_size is given twice: keep one of the two" },
	{ B
	  "\"aio\": {\"block_size\": 1}, \"elasticity\": {\"micro_batch_sizes\": [{\"a\": \"b\"}, \"c\"],\n\"version\" : 1, \"version\": 2}}",
	  "config:3:16: elasticity.version is given twice: keep one of the two" },
	{ B "\"steps_per_print\": 1e999}", "config:2:24: real number overflow near '1e999'" },
	{ "{}",
	  "config:1:1: train_batch_size is missing: want it, or train_micro_batch_size_per_gpu, or both" },
	{ "{\"gradient_accumulation_steps\": 2}", "config:1:1: train_batch_size is missing" },
	{ "{\n  \"train_micro_batch_size_per_gpu\": \"auto\"}",
	  "config:2:37: train_micro_batch_size_per_gpu is \"auto\", and micro_batch of the model description is unknown: set it, or give a number" },
	{ "{\"train_batch_size\": 3}",
	  "config:1:22: train_batch_size makes the batch 3, and micro batch 1 * accumulation 1 * 2 ranks is 2: want both equal" },
	{ "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 3}",
	  "config:1:22: train_batch_size makes the batch 32, and micro batch 4 * accumulation 3 * 2 ranks is 24" },
	{ "{\"train_micro_batch_size_per_gpu\": 9e15, \"gradient_accumulation_steps\": 2e9}",
	  "config:1:36: train_micro_batch_size_per_gpu gives a batch of more than 2^53 samples: want less" },
	{ B "\"train_micro_batch_size_per_gpu\": 2.5}",
	  "config:2:35: train_micro_batch_size_per_gpu is 2.5: want an integer of at least 1" },
	{ B "\"gradient_accumulation_steps\": 0}",
	  "config:2:32: gradient_accumulation_steps is 0: want an integer from 1 to 2147483647" },
	{ B "\"gradient_clipping\": -1}",
	  "config:2:22: gradient_clipping is -1: want a number of at least 0" },
	{ B "\"gradient_clipping\": true}",
	  "config:2:22: gradient_clipping is true: want a number of at least 0" },
	{ B "\"gradient_cliping\": 1}",
	  "config:2:1: gradient_cliping is unknown: did you mean gradient_clipping?" },
	{ B "\"stage\": 2}",
	  "config:2:1: stage is unknown: did you mean zero_optimization.stage?" },
	{ B "\"wibble_wobble\": 2}",
	  "config:2:1: wibble_wobble is unknown, and resembles no key of DeepSpeed's" },
	{ B "\"zero_optimization.stage\": 2}", "config:2:1: zero_optimization.stage is unknown" },
	{ B "\"prescale_gradients\": 1}",
	  "config:2:23: prescale_gradients is 1: want true or false" },
	{ B "\"prescale_gradients\": true, \"gradient_predivide_factor\": 3}",
	  "config:2:58: gradient_predivide_factor is 3, and prescale_gradients divides by the 2 ranks: want one of the keys" },
	{ B "\"gradient_predivide_factor\": 0}",
	  "config:2:30: gradient_predivide_factor is 0: want a number above 0" },
	{ B "\"gradient_allreduce_op\": \"sum\"}",
	  "config:2:26: gradient_allreduce_op is \"sum\": only \"mean\" is possible: gradients are means" },
	{ B "\"communication_data_type\": \"fp16\"}",
	  "config:2:28: communication_data_type is f16, and tensors are f32: gradients travel in the type of their tensors: want null" },
	{ B "\"sparse_gradients\": true}",
	  "config:2:21: sparse_gradients is true: only false is possible: gradients are dense" },
	{ B "\"steps_per_print\": \"auto\"}",
	  "config:2:20: steps_per_print is \"auto\", which stands for nothing here: want an integer of at least 1" },
	{ B "\"zero_optimization\": 2}", "config:2:22: zero_optimization is 2: want an object" },
	{ B "\"zero_optimization\": {\n  \"stage\": \"two\"}}",
	  "config:3:12: zero_optimization.stage is \"two\": want an integer from 0 to 3" },
	{ B "\"zero_optimization\": {\"stage\": 4}}",
	  "config:2:32: zero_optimization.stage is 4: want an integer from 0 to 3" },
	{ B "\"zero_optimization\": {\"stage\": 2.5}}",
	  "config:2:32: zero_optimization.stage is 2.5: want an integer from 0 to 3" },
	{ B "\"zero_optimization\": {\"stage\": null}}",
	  "config:2:32: zero_optimization.stage is null: want an integer from 0 to 3" },
	{ B "\"zero_optimization\": {\"reduce_bucket_siz\": 1}}",
	  "config:2:23: zero_optimization.reduce_bucket_siz is unknown: did you mean zero_optimization.reduce_bucket_size?" },
	{ B "\"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\"}}}",
	  "config:2:67: zero_optimization.offload_optimizer.device is \"nvme\", and there is no nvme_path: want one, a directory" },
	{ B
	  "\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"nvme_path\": null, \"device\": \"nvme\"}}}",
	  "config:2:82: zero_optimization.offload_param.device is \"nvme\", and there is no nvme_path: want one, a directory" },
	{ B
	  "\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"\"}}}",
	  "config:2:84: zero_optimization.offload_param.nvme_path is \"\": want a directory for the files" },
	{ B "\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\"}}}",
	  "config:2:55: zero_optimization.offload_optimizer.device is \"cpu\", and the stage is 0: want stage 1, 2 or 3: what" },
	{ B "\"zero_optimization\": {\"cpu_offload\": true}}",
	  "config:2:38: zero_optimization.cpu_offload is true, and the stage is 0: want stage 1, 2 or 3: what" },
	{ B "\"zero_optimization\": {\"stage\": 2, \"offload_param\": {\"device\": \"nvme\"}}}",
	  "config:2:63: zero_optimization.offload_param.device is \"nvme\", and the stage is 2: want stage 3: below it" },
	{ B "\"zero_optimization\": {\"cpu_offload_param\": true, \"stage\": 2}}",
	  "config:2:44: zero_optimization.cpu_offload_param is true, and the stage is 2: want stage 3: below it" },
	{ B "\"zero_optimization\": {\"offload_param\": {\"device\": \"gpu\"}}}",
	  "config:2:51: zero_optimization.offload_param.device is \"gpu\": want one of \"none\", \"cpu\", \"nvme\"" },
	{ B "\"zero_optimization\": {\"offload_optimizer\": {\"ratio\": 1.5}}}",
	  "config:2:54: zero_optimization.offload_optimizer.ratio is 1.5: want a number from 0 to 1" },
	{ B "\"zero_optimization\": {\"offload_optimizer\": {\"buffer_count\": 1}}}",
	  "config:2:61: zero_optimization.offload_optimizer.buffer_count is 1: want an integer from 2 to 4096" },
	{ B "\"zero_optimization\": {\"offload_param\": {\"buffer_size\": 0}}}",
	  "config:2:56: zero_optimization.offload_param.buffer_size is 0: want an integer of at least 1" },
	{ B "\"zero_optimization\": {\"offload_param\": {\"max_in_cpu\": -1}}}",
	  "config:2:55: zero_optimization.offload_param.max_in_cpu is -1: want an integer of at least 0" },
	{ B "\"zero_optimization\": {\"offload_param\": {\"pin_memory\": 1}}}",
	  "config:2:55: zero_optimization.offload_param.pin_memory is 1: want true or false" },
	{ B "\"zero_optimization\": {\"offload_optimizer\": {\"super_offload\": true}}}",
	  "config:2:62: zero_optimization.offload_optimizer.super_offload is true: only false is possible: updates" },
	{ B "\"aio\": {\"block_size\": 10000}}",
	  "config:2:23: aio.block_size is 10000: want a multiple of 4096, at most 2^30" },
	{ B "\"aio\": {\"queue_depth\": 0}}",
	  "config:2:24: aio.queue_depth is 0: want an integer from 1 to 4096" },
	{ B "\"aio\": {\"use_gds\": true}}",
	  "config:2:20: aio.use_gds is true: only false is possible: what is read and written passes through host memory" },
	{ B "\"zero_optimization\": {\"cpu_offload\": true, \"offload_optimizer\": {}}}",
	  "config:2:23: zero_optimization.cpu_offload is given beside offload_optimizer: keep the latter alone" },
	{ B
	  "\"zero_optimization\": {\"stage3_gather_fp16_weights_on_model_save\": true,\n\"stage3_gather_16bit_weights_on_model_save\": true}}",
	  "config:2:23: zero_optimization.stage3_gather_fp16_weights_on_model_save is given beside" },
	{ B "\"zero_optimization\": {\"zenflow\": {}}}",
	  "config:2:34: zero_optimization.zenflow is an object: only null is possible: all of an update is done at once" },
	{ B "\"zero_optimization\": {\"zero_hpz_partition_size\": 8}}",
	  "config:2:50: zero_optimization.zero_hpz_partition_size is 8: only 1 is possible: tensors are cut over all ranks" },
	{ B "\"zero_optimization\": {\"mics_shard_size\": 4}}",
	  "config:2:42: zero_optimization.mics_shard_size is 4: only -1 is possible" },
	{ B "\"zero_optimization\": {\"stage3_model_persistence_threshold\": 100}}",
	  "zero_optimization.stage3_model_persistence_threshold is 100: only" },
	{ B "\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}}",
	  "config:2:21: fp16.enabled is on, and that of bf16 too: want one of them" },
	{ B "\"bf16\": {\"enabled\": true}, \"bfloat16\": {\"enabled\": true}}",
	  "config:2:28: bfloat16 is given beside bf16: keep the latter alone" },
	{ B "\"bfloat16\": {\"enabled\": 1}}",
	  "config:2:25: bfloat16.enabled is 1: want true or false" },
	{ B "\"fp16\": {\"loss_scale\": true}}",
	  "config:2:24: fp16.loss_scale is true: want a number of at least 0" },
	{ B "\"fp16\": {\"loss_scale\": -2}}",
	  "config:2:24: fp16.loss_scale is -2: want a number of at least 0" },
	{ B "\"fp16\": {\"initial_scale_power\": 200}}",
	  "config:2:33: fp16.initial_scale_power is 200: want an integer from 0 to 127" },
	{ B "\"fp16\": {\"min_loss_scale\": 0}}",
	  "config:2:28: fp16.min_loss_scale is 0: want a number above 0" },
	{ B "\"fp16\": {\"loss_scale_window\": 0}}",
	  "config:2:31: fp16.loss_scale_window is 0: want an integer of at least 1" },
	{ B "\"amp\": {\"enabled\": true}}",
	  "config:2:1: amp is not possible but with \"enabled\": false: Apex is PyTorch's" },
	{ B "\"data_types\": {\"grad_accum_dtype\": \"bf16\"}}",
	  "config:2:36: data_types.grad_accum_dtype is \"bf16\": only \"fp32\" is possible: masters, moments and sums" },
	{ B "\"optimizer\": {\"params\": {}}}",
	  "config:2:14: optimizer has no \"type\": want one of \"AdamW\", \"Adam\", \"SGD\", \"Lion\", \"Adagrad\", \"Lamb\"" },
	{ B "\"optimizer\": {\"type\": \"OneBitAdam\"}}",
	  "config:2:23: optimizer.type is \"OneBitAdam\": want one of \"AdamW\", \"Adam\", \"SGD\", \"Lion\", \"Adagrad\", \"Lamb\"" },
	{ B "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"momentum\": 0.9}}}",
	  "config:2:43: optimizer.params.momentum is no parameter of AdamW: want some of lr, betas, eps, weight_decay, adam_w_mode" },
	{ B "\"optimizer\": {\"type\": \"SGD\", \"params\": {\"wibble_wobble\": 0.9}}}",
	  "config:2:41: optimizer.params.wibble_wobble is unknown: want some of lr, weight_decay, momentum, dampening, nesterov" },
	{ B "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"max_grad_norm\": 1}}}",
	  "config:2:43: optimizer.params.max_grad_norm is not possible: want gradient_clipping beside \"optimizer\" instead" },
	{ B "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"betas\": [0.9]}}}",
	  "config:2:52: optimizer.params.betas is a list of 1: want a list of two numbers from 0 to below 1" },
	{ B "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"betas\": [0.9, 1]}}}",
	  "optimizer.params.betas is a list of 2: want a list of two numbers from 0" },
	{ B "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"adam_w_mode\": false}}}",
	  "config:2:58: optimizer.params.adam_w_mode is false, and the type is AdamW: want \"type\": \"Adam\"" },
	{ B "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"amsgrad\": true}}}",
	  "optimizer.params.amsgrad is true: only false is possible" },
	{ B "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"bias_correction\": false}}}",
	  "optimizer.params.bias_correction is false: only true is possible" },
	{ B "\"optimizer\": {\"type\": \"SGD\", \"params\": {\"nesterov\": true}}}",
	  "config:2:53: optimizer.params.nesterov is true: want a momentum above 0, and no dampening, with it" },
	{ B "\"scheduler\": {\"type\": \"Cosine\"}}",
	  "config:2:23: scheduler.type is \"Cosine\": want one of \"WarmupLR\", \"WarmupDecayLR\", \"WarmupCosineLR\", \"OneCycle\", \"LRRangeTest\"" },
	{ B "\"scheduler\": {\"params\": {}}}",
	  "config:2:14: scheduler has no \"type\": want one of \"WarmupLR\"" },
	{ B "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"total_num_steps\": 9}}}",
	  "config:2:46: scheduler.params.total_num_steps is no parameter of WarmupLR: want some of warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type" },
	{ B "\"scheduler\": {\"type\": \"WarmupDecayLR\"}}",
	  "config:2:14: scheduler has no total_num_steps: want an integer of at least 1" },
	{ B
	  "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": \"auto\"}}}",
	  "config:2:70: scheduler.params.total_num_steps is \"auto\", and total_steps of the model description is unknown" },
	{ B
	  "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 99, \"warmup_num_steps\": 99}}}",
	  "config:2:70: scheduler.params.total_num_steps makes the total 99, and the warm-up takes 99: want more than that" },
	{ B "\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0}}}",
	  "config:2:45: scheduler.params has no cycle_max_lr: want a number" },
	{ B "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": [1, 2, 3]}}}",
	  "config:2:63: scheduler.params.warmup_min_lr is a list of 3: want a number of at least 0, or a list of one for each of 1 groups" },
	{ B "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": [\"a\"]}}}",
	  "scheduler.params.warmup_min_lr has \"a\" for group 0: want" },
	{ B "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"last_batch_iteration\": 5}}}",
	  "last_batch_iteration is 5: only -1 is possible" },
	{ B "\"tensorboard\": {\"enabled\": true}}",
	  "config:2:28: tensorboard.enabled is true: only false is possible: there is no well-kept C library for event files" },
	{ B "\"elasticity\": {\"enabled\": true, \"max_train_batch_size\": 2000}}",
	  "elasticity.enabled is true: only false is possible" },
	{ B "\"activation_checkpointing\": {\"cpu_checkpointing\": true}}",
	  "activation_checkpointing.cpu_checkpointing is true: only false" },
	{ B "\"compression_training\": {\"layer_reduction\": {}}}",
	  "config:2:1: compression_training is not possible but with \"enabled\": false" },
	{ B "/* \xc3\xa4\xc3\xb6 */ \"stag\xc3\xa9\": 2}", "config:2:10: stag\xc3\xa9 is unknown" },
};

static void mistakes_are_told_with_their_place(void **state)
{
	struct kolo_zero_model m = model_of(2);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(broken); i++)
		check_refused(broken[i].text, &m, broken[i].says);
}

static void auto_needs_the_model_description(void **state)
{
	struct kolo_zero_model m = model_of(2);

	(void)state;
	check_refused(
		"{\"train_batch_size\": 2, \"zero_optimization\": {\"reduce_bucket_size\": \"auto\"}}",
		&m,
		"config:1:69: zero_optimization.reduce_bucket_size is \"auto\", and hidden of the model description"
		" is unknown: set it, or want an integer of at least 1024");
	m.lr = -1;
	check_refused(
		"{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": \"auto\"}}}",
		&m,
		"config:1:71: optimizer.params.lr is \"auto\", and lr of the model description gives -1: want");
}

static void a_wrong_model_description_is_told(void **state)
{
	struct kolo_zero_settings *s;
	struct kolo_zero_model m = model_of(0);

	(void)state;
	check_refused("{}", &m, "model.nranks 0");
	m = model_of(1);
	m.type = KOLO_F64;
	check_refused("{}", &m, "model.type is");
	m = model_of(1);
	m.device = 2;
	check_refused("{}", &m, "model.device is 2: want 0 or 1");
	m = model_of(1);
	m.reserved[6] = 1;
	check_refused("{}", &m, "model.reserved is not zero");
	check_refused("{}", NULL, "needs a model description");
	m = model_of(1);
	check_refused(NULL, &m, "text is NULL");
	CHECK(kolo_zero_settings_parse("{}", &m, NULL) == KOLO_EINVAL);
	CHECK(kolo_zero_settings_read(NULL, &m, &s) == KOLO_EINVAL && !s);
	kolo_zero_settings_destroy(NULL);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *bytes, size_t len)
{
	FILE *f = fopen(path, "w");

	CHECK(f && fwrite(bytes, 1, len, f) == len && fclose(f) == 0);
}

static void files_are_read_and_written_whole(void **state)
{
	char folder[] = "/tmp/test_zero_config.XXXXXX", path[64], blank[1 << 20 | 1];
	struct kolo_zero_model m = model_of(2);
	struct kolo_zero_settings *s = NULL, *again;

	(void)state;
	CHECK(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/c.json", folder);
	CHECK(kolo_zero_settings_read(path, &m, &s) == KOLO_ESYS && !s &&
	      strstr(kolo_last_error(), "No such file"));
	CHECK(kolo_zero_settings_read(folder, &m, &s) == KOLO_ESYS &&
	      strstr(kolo_last_error(), "Is a directory"));
	write_file(path, "{\n \"a\0b\"}", 9);
	CHECK(kolo_zero_settings_read(path, &m, &s) == KOLO_EINVAL);
	CHECK(strstr(kolo_last_error(), "/c.json:2:4: a byte that is 0: want a text"));
	memset(blank, ' ', sizeof(blank));
	write_file(path, blank, sizeof(blank));
	CHECK(kolo_zero_settings_read(path, &m, &s) == KOLO_EINVAL &&
	      strstr(kolo_last_error(), "more than 1048576 bytes"));
	write_file(path, "{\"fp16\": 1}", 11);
	CHECK(kolo_zero_settings_read(path, &m, &s) == KOLO_EINVAL);
	CHECK(strstr(kolo_last_error(), "/c.json:1:10: fp16 is 1: want an object"));

	CHECK(kolo_zero_settings_parse("{\"train_batch_size\": 2}", &m, &s) == 0);
	CHECK(kolo_zero_settings_write(s, path) == 0);
	CHECK(kolo_zero_settings_read(path, &m, &again) == 0);
	CHECK(strcmp(kolo_zero_settings_text(s), kolo_zero_settings_text(again)) == 0);
	kolo_zero_settings_destroy(again);
	CHECK(unlink(path) == 0 && rmdir(folder) == 0); /* nothing else was left there */
	CHECK(kolo_zero_settings_write(s, path) == KOLO_ESYS && strstr(kolo_last_error(), path));
	CHECK(kolo_zero_settings_write(s, NULL) == KOLO_EINVAL &&
	      kolo_zero_settings_write(NULL, path) == KOLO_EINVAL);
	kolo_zero_settings_destroy(s);
}

/* ---- Robustness ------------------------------------------------------------------------------ */

static void reading_survives_every_failure_of_memory(void **state)
{
	struct kolo_zero_model m = model_of(2);
	struct kolo_zero_settings *s = NULL;
	long before, k = 0;
	int rc;

	(void)state;
	m.micro_batch = 1;
	json_set_alloc_funcs(allocate_for_jansson, __wrap_free);
	t_is_rank = true;
	before = t_live;
	do {
		t_countdown = ++k;
		rc = kolo_zero_settings_read(USERS_FILE, &m, &s);
		/* jansson takes some failures for wrong tokens. */
		CHECK(rc == 0 || rc == KOLO_ENOMEM || rc == KOLO_EINVAL);
		CHECK(rc == 0 || (!s && t_live == before && *kolo_last_error()));
	} while (rc < 0);
	CHECK(t_countdown > 0 && k > 100);
	t_countdown = 0;
	t_is_rank = false;
	kolo_zero_settings_destroy(s);
	CHECK(t_live == before);
}

/* A few bytes become others. */
static void change_bytes(char *text, size_t len, uint64_t *seed)
{
	static const char likely[] = "{}[]\",:#/*\\\n0123456789.eE-+truefalsn \0\x80\xff";

	for (uint64_t n = 1 + t_random(seed) % 4; n > 0; n--)
		text[t_random(seed) % len] = likely[t_random(seed) % (sizeof(likely) - 1)];
}

/* The value of one key becomes another. */
static void change_value(char *text, size_t room, uint64_t *seed)
{
	static const char *const values[] = {
		"\"auto\"", "null",  "{}",  "[]", "-1", "0", "2.5", "1e300", "9223372036854775807",
		"true",     "\"x\"", "[1]",
	};
	char copy[4096], *colon = text;

	for (uint64_t n = 1 + t_random(seed) % 30; n > 0; n--)
		colon = strchr(colon + 1, ':') ? strchr(colon + 1, ':') : colon;
	strcpy(copy, colon + 1 + strcspn(colon + 1, ",\n"));
	snprintf(colon + 1, room - (size_t)(colon + 1 - text), "%s%s",
		 values[t_random(seed) % ARRAY_LEN(values)], copy);
}

static void random_changes_crash_nothing(void **state)
{
	enum { TIMES = 10000 };
	struct kolo_zero_model m = model_of(2);
	char text[4096] = "", changed[sizeof(text)];
	FILE *f = fopen(USERS_FILE, "r");
	size_t len = f ? fread(text, 1, sizeof(text) - 100, f) : 0;
	uint64_t seed = 1;
	int good = 0;

	(void)state;
	CHECK(len > 1000 && fclose(f) == 0);
	m.micro_batch = 1;
	for (int i = 0; i < TIMES; i++) {
		struct kolo_zero_settings *s, *again;

		memcpy(changed, text, sizeof(text));
		if (i % 2)
			change_value(changed, sizeof(changed), &seed);
		if (i % 4 != 1)
			change_bytes(changed, len, &seed);
		m.device = i / 4 % 2;
		if (kolo_zero_settings_parse(changed, &m, &s) < 0)
			continue;
		CHECK(kolo_zero_settings_parse(kolo_zero_settings_text(s), &m, &again) == 0);
		CHECK(strcmp(kolo_zero_settings_text(s), kolo_zero_settings_text(again)) == 0);
		kolo_zero_settings_destroy(again);
		kolo_zero_settings_destroy(s);
		good++;
	}
	printf("# %d of %d were configs still\n", good, TIMES);
	CHECK(good > 0 && good < TIMES);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(mistakes_are_told_with_their_place),
	cmocka_unit_test(auto_needs_the_model_description),
	cmocka_unit_test(a_wrong_model_description_is_told),
	cmocka_unit_test(files_are_read_and_written_whole),
	cmocka_unit_test(reading_survives_every_failure_of_memory),
	cmocka_unit_test(random_changes_crash_nothing),
};

T_MAIN(tests)
