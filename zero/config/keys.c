/* The table of keys (zero_keys): what values each may have, and what becomes of them.
 *
 * A new key is a row here. If it does something, it also needs a place in struct zero_settings or a
 * public struct, or a rule in rules.c. Rows of a section follow each other. The resolved text has
 * the same order. */
#include "zero/config/keys.h"

#include "zero/config/config.h"
#include "zero/core/layout.h"
#include "zero/optimizers/list.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* ---- Values ---------------------------------------------------------------------------------- */

static const struct zero_range flag = { ZERO_FLAG, "true or false", .low = 0, .high = 1 };
static const struct zero_range stage = { ZERO_INTEGER, "an integer from 0 to 3", .low = 0,
					 .high = 3 };
static const struct zero_range count = { ZERO_INTEGER, "an integer of at least 1", .low = 1,
					 .high = INFINITY };
static const struct zero_range bucket = { ZERO_INTEGER, "an integer of at least 1024",
					  .low = ZERO_LEAST_BUCKET, .high = INFINITY };
static const struct zero_range count_int = { ZERO_INTEGER, "an integer from 1 to 2147483647",
					     .low = 1, .high = INT_MAX };
static const struct zero_range natural_int = { ZERO_INTEGER, "an integer from 0 to 2147483647",
					       .low = 0, .high = INT_MAX };
static const struct zero_range natural = { ZERO_INTEGER, "an integer of at least 0", .low = 0,
					   .high = INFINITY };
static const struct zero_range buffers = { ZERO_INTEGER, "an integer from 2 to 4096", .low = 2,
					   .high = 4096 };
/* The limits of kolo_zero_create. */
static const struct zero_range pages = { ZERO_INTEGER, "a multiple of 4096, at most 2^30",
					 .low = 4096, .high = 1 << 30, .multiple = 4096 };
static const struct zero_range depth = { ZERO_INTEGER, "an integer from 1 to 4096", .low = 1,
					 .high = 4096 };
static const struct zero_range integer = { ZERO_INTEGER, "an integer", .low = -INFINITY,
					   .high = INFINITY };
static const struct zero_range power = { ZERO_INTEGER, "an integer from 0 to 127", .low = 0,
					 .high = 127 };
static const struct zero_range number = { ZERO_NUMBER, "a number", .low = -INFINITY,
					  .high = INFINITY };
static const struct zero_range rate = { ZERO_NUMBER, "a number of at least 0", .low = 0,
					.high = INFINITY };
static const struct zero_range positive = { ZERO_NUMBER, "a number above 0", .low = 0,
					    .high = INFINITY, .above = true };
static const struct zero_range part = { ZERO_NUMBER, "a number from 0 to 1", .low = 0, .high = 1 };
static const struct zero_range decay = { ZERO_NUMBER, "a number from 0 to below 1", .low = 0,
					 .high = 1, .below = true };
static const struct zero_range betas = { ZERO_BETAS, "a list of two numbers from 0 to below 1", 0,
					 1, .below = true };
static const struct zero_range text = { ZERO_TEXT, "a text", .low = 0, .high = 0 };
static const struct zero_range list = { ZERO_LIST, "a list", .low = 0, .high = 0 };
static const struct zero_range section = { ZERO_SECTION, "an object", .low = 0, .high = 0 };

static const char *optimizer_choice(int i)
{
	return kolo_zero_optimizer_name((enum kolo_zero_optimizer)i);
}

static const char *schedule_choice(int i)
{
	return kolo_zero_schedule_name((enum kolo_zero_schedule_type)i);
}

static const char *const devices[] = { "none", "cpu", "nvme" };
static const char *const types[] = { "fp32", "fp16", "bf16" };
static const char *const reductions[] = { "mean", "sum" };
const char *const zero_orders[] = { "ring", "tree", "grid" };
static const char *const warmups[] = { "log", "linear" };
static const char *const validations[] = { "Ignore", "Warn", "Fail" };

static const struct zero_range optimizer = { ZERO_CHOICE, .low = 0, .high = ZERO_NOPTIMIZERS - 1,
					     .choice = optimizer_choice, .any_case = true };
static const struct zero_range schedule = { ZERO_CHOICE, NULL, KOLO_ZERO_WARMUP,
					    KOLO_ZERO_RANGE_TEST, .choice = schedule_choice };
static const struct zero_range device = { ZERO_CHOICE, .low = 0, .high = 2, .choices = devices };
static const struct zero_range type = { ZERO_CHOICE, .low = 0, .high = 2, .choices = types };
static const struct zero_range reduction = { ZERO_CHOICE, .low = 0, .high = 1,
					     .choices = reductions };
static const struct zero_range order = { ZERO_CHOICE, .low = 0, .high = 2, .choices = zero_orders };
static const struct zero_range warmup = { ZERO_CHOICE, .low = 0, .high = 1, .choices = warmups };
static const struct zero_range validation = { ZERO_CHOICE, .low = 0, .high = 2,
					      .choices = validations };

/* ---- Reasons --------------------------------------------------------------------------------- */

static const char already[] = "already so";
static const char read_ahead[] = "already so: state is read ahead and written back beside updates";
static const char one_ring[] =
	"no effect: the system is given many requests to a file at once (io_uring), without threads";
static const char no_torch[] = "no effect: it is about PyTorch's modules";
static const char no_quantizing[] = "what is sent is not quantized";
static const char no_groups[] = "tensors are cut over all ranks, not over groups of them";
static const char masters[] = "masters, moments and sums of gradients are always in f32";
static const char activations[] =
	"activations are the model's own: it says kolo_zero_use again where it recomputes";
static const char no_profiler[] =
	"the engine counts no operations of the model: kolo_zero_times_get has its times";
static const char no_profile[] = "no effect: no profile is made";
static const char no_events[] =
	"there is no well-kept C library for event files: csv_monitor has the same numbers";
static const char any_ranks[] = "already so: a checkpoint loads on any number of ranks";
static const char no_service[] =
	"the library talks to no service: csv_monitor has the same numbers";
static const char no_log[] = "no effect: that log is not written";
static const char no_elasticity[] =
	"batch sizes are not chosen by the number of ranks: give train_batch_size";
static const char no_elastic_batch[] =
	"no effect: batch sizes are not chosen by the number of ranks";
static const char one_loop[] = "no effect: there is one loop for each optimizer";
static const char one_directory[] = "all stages write into the same files";
static const char own_layers[] = "no effect: layers are divided by the program: kolo_parallel.h";
static const char own_rows[] =
	"no effect: with sequence parallelism ranks send their own rows only";
static const char no_such_part[] = "Kolo has no such part";

/* ---- Keys ------------------------------------------------------------------------------------ */

enum { /* bits */
       DONE = ZERO_DONE,
       ONLY = ZERO_ONLY,
       MOOT = ZERO_MOOT,
       REFUSED = ZERO_REFUSED,
       OFF = ZERO_OFF,
       RENAMED = ZERO_RENAMED,

       WARMUPS = 1 << KOLO_ZERO_WARMUP | 1 << KOLO_ZERO_WARMUP_DECAY,
       COSINE = 1 << KOLO_ZERO_WARMUP_COSINE,
       TOTALS = 1 << KOLO_ZERO_WARMUP_DECAY | COSINE,
       CYCLE = 1 << KOLO_ZERO_ONE_CYCLE,
       TEST = 1 << KOLO_ZERO_RANGE_TEST,
};
#define SETTING(in, member) .slot = ZERO_IN_##in, .offset = offsetof(struct zero_settings, member)
#define GROUP(in, member)                                                                          \
	.slot = ZERO_IN_##in, .offset = offsetof(struct kolo_zero_group, member), .of_group = true
#define ROLE(is, of, because) .role = ZERO_##is, .preset = of, .why = because
#define ZERO(name)            "zero_optimization." name
#define OPTIMIZER(name)       "optimizer.params." name
#define SCHEDULER(name)       "scheduler.params." name

const struct zero_key zero_keys[] = {
	{ "train_batch_size", &count, SETTING(SIZE, train), .automatic = ZERO_AUTO_TRAIN },
	{ "train_micro_batch_size_per_gpu", &count, SETTING(SIZE, micro),
	  .automatic = ZERO_AUTO_MICRO },
	{ "gradient_accumulation_steps", &count_int, SETTING(SIZE, accumulation),
	  .automatic = ZERO_AUTO_ACCUMULATION },
	{ "gradient_clipping", &rate, SETTING(DOUBLE, shown.config.clip),
	  .automatic = ZERO_AUTO_CLIP },
	{ "prescale_gradients", &flag, SETTING(INT, prescale) },
	{ "gradient_predivide_factor", &positive, SETTING(DOUBLE, predivide) },
	{ "gradient_allreduce_op", &reduction,
	  ROLE(ONLY, 0, "gradients are means over all samples of all ranks: scale the loss") },
	{ "reduction_order", &order, SETTING(INT, order), .nullable = true },
	{ "strict_gradients", &flag, SETTING(INT, shown.config.strict) },
	{ "communication_data_type", &type, SETTING(INT, wire), .nullable = true },
	{ "seq_parallel_communication_data_type", &type,
	  ROLE(MOOT, NAN, "no effect: sequences are not cut"), .nullable = true },
	{ "sparse_gradients", &flag, ROLE(ONLY, 0, "gradients are dense") },
	{ "fp32_allreduce", &flag, ROLE(ONLY, 0, "gradients travel in the type of their tensors") },
	{ "disable_allgather", &flag, ROLE(ONLY, 0, "ranks need the updated parameters") },
	{ "steps_per_print", &count, SETTING(LONG, shown.steps_per_print), .nullable = true },
	{ "wall_clock_breakdown", &flag, SETTING(INT, shown.wall_clock_breakdown) },
	{ "memory_breakdown", &flag, SETTING(INT, shown.memory_breakdown) },
	{ "dump_state", &flag,
	  ROLE(MOOT, 0, "nothing is printed: kolo_zero_settings_text has it") },
	{ "dataloader_drop_last", &flag,
	  ROLE(ONLY, 0, "the program reads its data: it may leave out its last samples") },
	{ "zero_allow_untested_optimizer", &flag,
	  ROLE(MOOT, 0, "no effect: there are tests for every optimizer") },
	{ "zero_force_ds_cpu_optimizer", &flag, ROLE(MOOT, 1, one_loop) },
	{ "managed_gradient_accumulation", &flag,
	  ROLE(ONLY, 1, "the engine counts micro-steps itself") },
	{ "use_data_before_expert_parallelism", &flag, ROLE(ONLY, 0, "there are no experts") },
	{ "vocabulary_size", &count,
	  ROLE(MOOT, NAN, "no effect: tensors have their shapes from the program"),
	  .nullable = true },

	{ "zero_optimization", .range = &section },
	{ ZERO("stage"), &stage, SETTING(INT, shown.config.stage) },
	{ ZERO("contiguous_gradients"), &flag, SETTING(INT, shown.config.contiguous) },
	{ ZERO("reduce_scatter"), &flag, SETTING(INT, shown.config.reduce_scatter) },
	{ ZERO("reduce_bucket_size"), &bucket, SETTING(SIZE, shown.config.reduce_bucket),
	  .automatic = ZERO_AUTO_BUCKET },
	{ ZERO("use_multi_rank_bucket_allreduce"), &flag,
	  ROLE(ONLY, 1, "a bucket always has parts of all ranks") },
	{ ZERO("allgather_partitions"), &flag, SETTING(INT, shown.config.allgather) },
	{ ZERO("allgather_bucket_size"), &count, SETTING(SIZE, shown.config.gather_bucket) },
	{ ZERO("overlap_comm"), &flag, SETTING(INT, shown.config.overlap), .nullable = true },
	{ ZERO("load_from_fp32_weights"), &flag,
	  ROLE(ONLY, 1, "masters begin with the tensors that kolo_zero_create gets") },
	{ ZERO("elastic_checkpoint"), &flag, ROLE(MOOT, 0, any_ranks) },
	{ ZERO("offload_param"), &section, .nullable = true },
	{ ZERO("offload_param.device"), &device, SETTING(INT, param_place) },
	{ ZERO("offload_param.nvme_path"), &text, SETTING(TEXT, param_path), .nullable = true,
	  .need = ZERO_NEEDS_PARAM_FILES },
	{ ZERO("offload_param.buffer_count"), &buffers,
	  SETTING(INT, shown.config.offload_param.buffers), .need = ZERO_NEEDS_PARAM_OFFLOADED },
	{ ZERO("offload_param.buffer_size"), &count,
	  ROLE(MOOT, NAN, "no effect: a buffer holds any shard") },
	{ ZERO("offload_param.max_in_cpu"), &natural,
	  SETTING(SIZE, shown.config.offload_param.in_host), .need = ZERO_NEEDS_PARAM_FILES },
	{ ZERO("offload_param.pin_memory"), &flag, SETTING(INT, shown.config.offload_param.pin),
	  .need = ZERO_NEEDS_PARAM_COPIED },
	{ ZERO("offload_optimizer"), &section, .nullable = true },
	{ ZERO("offload_optimizer.device"), &device, SETTING(INT, optimizer_place) },
	{ ZERO("offload_optimizer.nvme_path"), &text, SETTING(TEXT, optimizer_path),
	  .nullable = true, .need = ZERO_NEEDS_OPTIMIZER_FILES },
	{ ZERO("offload_optimizer.buffer_count"), &buffers,
	  SETTING(INT, shown.config.offload_optimizer.buffers),
	  .need = ZERO_NEEDS_OPTIMIZER_OFFLOADED },
	{ ZERO("offload_optimizer.pin_memory"), &flag,
	  SETTING(INT, shown.config.offload_optimizer.pin), .need = ZERO_NEEDS_OPTIMIZER_COPIED },
	{ ZERO("offload_optimizer.pipeline"), &flag, ROLE(MOOT, 0, read_ahead) },
	{ ZERO("offload_optimizer.pipeline_read"), &flag, ROLE(MOOT, 0, read_ahead) },
	{ ZERO("offload_optimizer.pipeline_write"), &flag, ROLE(MOOT, 0, read_ahead) },
	{ ZERO("offload_optimizer.fast_init"), &flag,
	  ROLE(MOOT, 0, "no effect: there is one way for state to begin") },
	{ ZERO("offload_optimizer.ratio"), &part,
	  SETTING(DOUBLE, shown.config.offload_optimizer.ratio),
	  .need = ZERO_NEEDS_OPTIMIZER_OFFLOADED },
	{ ZERO("offload_optimizer.super_offload"), &flag,
	  ROLE(ONLY, 0, "updates are not made ahead of their norm") },
	{ ZERO("offload_optimizer.cpuadam_cores_perc"), &part,
	  ROLE(MOOT, 0.8, "no effect: it is about super_offload") },
	/* true is 1, which is also the index of "cpu". */
	{ ZERO("cpu_offload"), &flag, SETTING(INT, optimizer_place), .role = ZERO_OLD,
	  .why = "an old form of offload_optimizer.device", .other = ZERO("offload_optimizer") },
	{ ZERO("cpu_offload_param"), &flag, SETTING(INT, param_place), .role = ZERO_OLD,
	  .why = "an old form of offload_param.device", .other = ZERO("offload_param") },
	{ ZERO("cpu_offload_use_pin_memory"), &flag, SETTING(INT, old_pin), .role = ZERO_OLD,
	  .why = "an old form of pin_memory, where cpu_offload and cpu_offload_param offload something",
	  .other = ZERO("offload_optimizer") },
	{ ZERO("sub_group_size"), &natural, SETTING(SIZE, shown.config.sub_group) },
	{ ZERO("stage3_prefetch_bucket_size"), &natural, SETTING(SIZE, shown.config.prefetch),
	  .automatic = ZERO_AUTO_PREFETCH, .need = ZERO_NEEDS_STAGE_3 },
	{ ZERO("stage3_param_persistence_threshold"), &natural,
	  SETTING(SIZE, shown.config.persistence), .automatic = ZERO_AUTO_PERSISTENCE,
	  .need = ZERO_NEEDS_STAGE_3 },
	{ ZERO("stage3_model_persistence_threshold"), &count,
	  ROLE(ONLY, 0x1p63, "what stays is limited by tensor: leave it out") },
	{ ZERO("stage3_max_live_parameters"), &natural, SETTING(SIZE, shown.config.max_live),
	  .need = ZERO_NEEDS_STAGE_3 },
	{ ZERO("stage3_max_reuse_distance"), &natural, SETTING(SIZE, shown.config.reuse_distance),
	  .need = ZERO_NEEDS_STAGE_3 },
	{ ZERO("stage3_gather_16bit_weights_on_model_save"), &flag,
	  ROLE(MOOT, 0, "already so: kolo_zero_get gathers whole tensors at every stage") },
	{ ZERO("stage3_gather_fp16_weights_on_model_save"), &flag, .role = ZERO_RENAMED,
	  .other = ZERO("stage3_gather_16bit_weights_on_model_save") },
	{ ZERO("stage3_module_granularity_threshold"), &natural,
	  ROLE(ONLY, 0, "tensors are gathered one by one") },
	{ ZERO("stage3_use_all_reduce_for_fetch_params"), &flag,
	  ROLE(ONLY, 0, "parameters are gathered by all-gathers") },
	{ ZERO("stage3_allgather_sequential"), &flag,
	  ROLE(ONLY, 0, "gathers are ordered by the queue: set overlap_comm to false") },
	{ ZERO("ignore_unused_parameters"), &flag,
	  ROLE(ONLY, 1, "a tensor without a gradient counts as one of zeros") },
	{ ZERO("legacy_stage1"), &flag, ROLE(ONLY, 0, "there is one stage 1") },
	{ ZERO("round_robin_gradients"), &flag, ROLE(MOOT, 0, already) },
	{ ZERO("zero_hpz_partition_size"), &count, ROLE(ONLY, 1, no_groups) },
	{ ZERO("zero_quantized_weights"), &flag, ROLE(ONLY, 0, no_quantizing) },
	{ ZERO("zero_quantized_nontrainable_weights"), &flag, ROLE(ONLY, 0, no_quantizing) },
	{ ZERO("zero_quantized_gradients"), &flag, ROLE(ONLY, 0, no_quantizing) },
	{ ZERO("zeropp_loco_param"), &section, ROLE(ONLY, NAN, no_quantizing), .nullable = true },
	{ ZERO("mics_shard_size"), &integer, ROLE(ONLY, -1, no_groups) },
	{ ZERO("mics_hierarchical_params_gather"), &flag, ROLE(ONLY, 0, no_groups) },
	{ ZERO("memory_efficient_linear"), &flag, ROLE(MOOT, 1, no_torch) },
	{ ZERO("pipeline_loading_checkpoint"), &flag, ROLE(MOOT, 0, one_directory) },
	{ ZERO("override_module_apply"), &flag, ROLE(MOOT, 1, no_torch) },
	{ ZERO("log_trace_cache_warnings"), &flag,
	  ROLE(MOOT, 0,
	       "nothing is printed: kolo_zero_step tells when ranks use tensors in different orders") },
	{ ZERO("enable_sanity_checks"), &flag, ROLE(MOOT, 0, already) },
	{ ZERO("save_muon_momentum_buffer_in_memory"), &flag, ROLE(ONLY, 0, "there is no Muon") },
	{ ZERO("zenflow"), &section,
	  ROLE(ONLY, NAN, "all of an update is done at once, not the important part first"),
	  .nullable = true },

	{ "fp16", .range = &section },
	{ "fp16.enabled", &flag, SETTING(INT, fp16), .automatic = ZERO_AUTO_FP16 },
	{ "fp16.loss_scale", &rate, SETTING(DOUBLE, loss_scale) },
	{ "fp16.initial_scale_power", &power, SETTING(INT, scale_power) },
	{ "fp16.loss_scale_window", &count, SETTING(LONG, shown.config.scaling.window) },
	{ "fp16.hysteresis", &count_int, SETTING(INT, shown.config.scaling.hysteresis) },
	{ "fp16.consecutive_hysteresis", &flag, SETTING(INT, shown.config.scaling.consecutive) },
	{ "fp16.min_loss_scale", &positive, SETTING(DOUBLE, shown.config.scaling.min) },
	{ "fp16.auto_cast", &flag, ROLE(ONLY, 0, "the program casts its inputs") },
	{ "fp16.fp16_master_weights_and_grads", &flag, ROLE(ONLY, 0, masters) },

	{ "bf16", .range = &section },
	{ "bf16.enabled", &flag, SETTING(INT, bf16), .automatic = ZERO_AUTO_BF16 },
	{ "bf16.immediate_grad_update", &flag,
	  ROLE(MOOT, 0, "already so: gradients go into their buckets as they are reported") },
	{ "bf16.check_grad_overflow", &flag,
	  ROLE(ONLY, 1, "an update with an infinite gradient is always skipped") },
	{ "bf16.bf16_master_weights_and_grads", &flag, ROLE(ONLY, 0, masters) },
	{ "bf16.bf16_optimizer_states", &flag, ROLE(ONLY, 0, masters) },
	{ "bfloat16", &section, .role = ZERO_RENAMED, .other = "bf16" },
	{ "amp", &section, ROLE(OFF, 0, "Apex is PyTorch's: enable fp16 or bf16") },
	{ "data_types", .range = &section },
	{ "data_types.grad_accum_dtype", &type, ROLE(ONLY, 0, masters), .nullable = true },

	{ "optimizer", .range = &section },
	{ "optimizer.type", &optimizer, SETTING(INT, optimizer) },
	{ "optimizer.legacy_fusion", &flag, ROLE(MOOT, 0, one_loop) },
	{ "optimizer.params", .range = &section },
	{ OPTIMIZER("lr"), &rate, GROUP(DOUBLE, lr), .automatic = ZERO_AUTO_LR },
	{ OPTIMIZER("betas"), &betas, GROUP(DOUBLE, beta1), .automatic = ZERO_AUTO_BETAS,
	  .params = ZERO_HAS_BETAS },
	{ OPTIMIZER("eps"), &rate, GROUP(DOUBLE, eps), .automatic = ZERO_AUTO_EPS,
	  .params = ZERO_HAS_EPS },
	{ OPTIMIZER("weight_decay"), &rate, GROUP(DOUBLE, weight_decay),
	  .automatic = ZERO_AUTO_DECAY },
	{ OPTIMIZER("momentum"), &rate, GROUP(DOUBLE, momentum), .params = ZERO_HAS_MOMENTUM },
	{ OPTIMIZER("dampening"), &rate, GROUP(DOUBLE, dampening), .params = ZERO_HAS_MOMENTUM },
	{ OPTIMIZER("nesterov"), &flag, GROUP(INT, nesterov), .params = ZERO_HAS_MOMENTUM },
	{ OPTIMIZER("lr_decay"), &rate, GROUP(DOUBLE, lr_decay), .params = ZERO_HAS_SUM },
	{ OPTIMIZER("initial_accumulator_value"), &rate, GROUP(DOUBLE, initial),
	  .params = ZERO_HAS_SUM },
	{ OPTIMIZER("adam_w_mode"), &flag, SETTING(INT, adam_w_mode), .params = ZERO_HAS_ADAMS },
	{ OPTIMIZER("torch_adam"), &flag,
	  ROLE(MOOT, 0, "already so: updates follow torch's order of operations"),
	  .params = ZERO_HAS_ADAMS },
	{ OPTIMIZER("bias_correction"), &flag, ROLE(ONLY, 1, "moments are always corrected"),
	  .params = ZERO_HAS_BIAS },
	{ OPTIMIZER("amsgrad"), &flag, ROLE(ONLY, 0, "the largest second moment is not kept"),
	  .params = ZERO_HAS_BIAS },
	{ OPTIMIZER("eps_inside_sqrt"), &flag, ROLE(ONLY, 0, "eps is added to the root"),
	  .params = ZERO_HAS_RATIOS },
	{ OPTIMIZER("max_coeff"), &positive, ROLE(REFUSED, 0, "trust ratios have no bounds"),
	  .params = ZERO_HAS_RATIOS },
	{ OPTIMIZER("min_coeff"), &rate, ROLE(REFUSED, 0, "trust ratios have no bounds"),
	  .params = ZERO_HAS_RATIOS },
	{ OPTIMIZER("maximize"), &flag, ROLE(ONLY, 0, "a loss is made smaller: negate it"),
	  .params = ZERO_HAS_TORCHS },
	{ OPTIMIZER("fused"), &flag, ROLE(MOOT, 0, one_loop), .nullable = true,
	  .params = ZERO_HAS_TORCHS },
	{ OPTIMIZER("foreach"), &flag, ROLE(MOOT, 0, one_loop), .nullable = true,
	  .params = ZERO_HAS_TORCHS },
	{ OPTIMIZER("capturable"), &flag, ROLE(MOOT, 0, one_loop), .params = ZERO_HAS_ADAMS },
	{ OPTIMIZER("differentiable"), &flag,
	  ROLE(ONLY, 0, "nothing goes backward through an update"), .params = ZERO_HAS_TORCHS },
	{ OPTIMIZER("set_grad_none"), &flag,
	  ROLE(MOOT, 1, "no effect: the engine keeps no gradients of the program's"),
	  .params = ZERO_HAS_FUSED },
	{ OPTIMIZER("fp32_optimizer_states"), &flag, ROLE(ONLY, 1, masters),
	  .params = ZERO_HAS_ON_HOST },
	{ OPTIMIZER("max_grad_norm"), &rate,
	  ROLE(REFUSED, 0, "want gradient_clipping beside \"optimizer\" instead") },

	{ "scheduler", &section, .nullable = true },
	{ "scheduler.type", &schedule, SETTING(INT, schedule) },
	{ "scheduler.params", &section, .nullable = true },
	{ SCHEDULER("warmup_min_lr"), &rate, GROUP(DOUBLE, schedule.min_lr),
	  .automatic = ZERO_AUTO_ZERO, .lists = true, .schedules = WARMUPS },
	{ SCHEDULER("warmup_max_lr"), &rate, GROUP(DOUBLE, schedule.max_lr),
	  .automatic = ZERO_AUTO_LR, .lists = true, .schedules = WARMUPS },
	{ SCHEDULER("warmup_num_steps"), &natural, GROUP(LONG, schedule.warmup_steps),
	  .automatic = ZERO_AUTO_WARMUP, .schedules = WARMUPS | COSINE },
	{ SCHEDULER("total_num_steps"), &count, GROUP(LONG, schedule.total_steps),
	  .automatic = ZERO_AUTO_TOTAL, .schedules = TOTALS },
	{ SCHEDULER("warmup_type"), &warmup, GROUP(INT, schedule.linear),
	  .schedules = WARMUPS | COSINE },
	{ SCHEDULER("warmup_min_ratio"), &part, GROUP(DOUBLE, schedule.warmup_ratio),
	  .schedules = COSINE },
	{ SCHEDULER("cos_min_ratio"), &part, GROUP(DOUBLE, schedule.final_ratio),
	  .schedules = COSINE },
	{ SCHEDULER("cycle_min_lr"), &rate, GROUP(DOUBLE, schedule.min_lr), .schedules = CYCLE },
	{ SCHEDULER("cycle_max_lr"), &rate, GROUP(DOUBLE, schedule.max_lr), .schedules = CYCLE },
	{ SCHEDULER("decay_lr_rate"), &rate, GROUP(DOUBLE, schedule.decay_rate),
	  .schedules = CYCLE },
	{ SCHEDULER("cycle_first_step_size"), &count, GROUP(LONG, schedule.first_steps),
	  .schedules = CYCLE },
	{ SCHEDULER("cycle_second_step_size"), &count, GROUP(LONG, schedule.second_steps),
	  .nullable = true, .schedules = CYCLE },
	{ SCHEDULER("cycle_first_stair_count"), &natural,
	  ROLE(MOOT, 0, "no effect, as in DeepSpeed"), .nullable = true, .schedules = CYCLE },
	{ SCHEDULER("cycle_second_stair_count"), &natural,
	  ROLE(MOOT, 0, "no effect, as in DeepSpeed"), .nullable = true, .schedules = CYCLE },
	{ SCHEDULER("decay_step_size"), &natural, GROUP(LONG, schedule.decay_steps),
	  .schedules = CYCLE },
	{ SCHEDULER("cycle_momentum"), &flag, GROUP(INT, schedule.cycle_momentum),
	  .schedules = CYCLE },
	{ SCHEDULER("cycle_min_mom"), &decay, GROUP(DOUBLE, schedule.min_momentum),
	  .schedules = CYCLE },
	{ SCHEDULER("cycle_max_mom"), &decay, GROUP(DOUBLE, schedule.max_momentum),
	  .schedules = CYCLE },
	{ SCHEDULER("decay_mom_rate"), &rate, GROUP(DOUBLE, schedule.momentum_decay_rate),
	  .schedules = CYCLE },
	{ SCHEDULER("lr_range_test_min_lr"), &rate, GROUP(DOUBLE, schedule.min_lr), .lists = true,
	  .schedules = TEST },
	{ SCHEDULER("lr_range_test_step_size"), &count, GROUP(LONG, schedule.range_steps),
	  .schedules = TEST },
	{ SCHEDULER("lr_range_test_step_rate"), &rate, GROUP(DOUBLE, schedule.range_rate),
	  .schedules = TEST },
	{ SCHEDULER("lr_range_test_staircase"), &flag, GROUP(INT, schedule.staircase),
	  .schedules = TEST },
	{ SCHEDULER("last_batch_iteration"), &integer,
	  ROLE(ONLY, -1, "an engine begins with its first update") },

	{ "csv_monitor", .range = &section },
	{ "csv_monitor.enabled", &flag, SETTING(INT, csv) },
	{ "csv_monitor.output_path", &text, SETTING(TEXT, csv_folder) },
	{ "csv_monitor.job_name", &text, SETTING(TEXT, csv_job) },
	{ "tensorboard", .range = &section },
	{ "tensorboard.enabled", &flag, ROLE(ONLY, 0, no_events) },
	{ "tensorboard.output_path", &text, ROLE(MOOT, NAN, no_log) },
	{ "tensorboard.job_name", &text, ROLE(MOOT, NAN, no_log) },
	{ "wandb", .range = &section },
	{ "wandb.enabled", &flag, ROLE(ONLY, 0, no_service) },
	{ "wandb.group", &text, ROLE(MOOT, NAN, no_log), .nullable = true },
	{ "wandb.team", &text, ROLE(MOOT, NAN, no_log), .nullable = true },
	{ "wandb.project", &text, ROLE(MOOT, NAN, no_log) },
	{ "comet", .range = &section },
	{ "comet.enabled", &flag, ROLE(ONLY, 0, no_service) },
	{ "comet.samples_log_interval", &count, ROLE(MOOT, 100, no_log) },
	{ "comet.project", &text, ROLE(MOOT, NAN, no_log), .nullable = true },
	{ "comet.workspace", &text, ROLE(MOOT, NAN, no_log), .nullable = true },
	{ "comet.api_key", &text, ROLE(MOOT, NAN, no_log), .nullable = true },
	{ "comet.experiment_name", &text, ROLE(MOOT, NAN, no_log), .nullable = true },
	{ "comet.experiment_key", &text, ROLE(MOOT, NAN, no_log), .nullable = true },
	{ "comet.online", &flag, ROLE(MOOT, NAN, no_log), .nullable = true },
	{ "comet.mode", &text, ROLE(MOOT, NAN, no_log), .nullable = true },
	{ "comms_logger", .range = &section },
	{ "comms_logger.enabled", &flag,
	  ROLE(ONLY, 0, "nothing is printed: kolo_zero_traffic_get counts every byte") },
	{ "comms_logger.verbose", &flag, ROLE(MOOT, 0, no_log) },
	{ "comms_logger.prof_all", &flag, ROLE(MOOT, 1, no_log) },
	{ "comms_logger.debug", &flag, ROLE(MOOT, 0, no_log) },
	{ "comms_logger.prof_ops", &list, ROLE(MOOT, NAN, no_log) },

	{ "checkpoint", .range = &section },
	{ "checkpoint.tag_validation", &validation,
	  ROLE(MOOT, 1,
	       "no effect: checkpoints are called after their step, which is the same on all ranks") },
	{ "checkpoint.load_universal", &flag, ROLE(MOOT, 0, any_ranks) },
	{ "checkpoint.use_node_local_storage", &flag,
	  ROLE(ONLY, 0, "all ranks write into one directory") },
	{ "checkpoint.parallel_write", .range = &section },
	{ "checkpoint.parallel_write.pipeline_stage", &flag, ROLE(MOOT, 0, one_directory) },
	{ "activation_checkpointing", .range = &section },
	{ "activation_checkpointing.partition_activations", &flag, ROLE(ONLY, 0, activations) },
	{ "activation_checkpointing.contiguous_memory_optimization", &flag,
	  ROLE(ONLY, 0, activations) },
	{ "activation_checkpointing.cpu_checkpointing", &flag, ROLE(ONLY, 0, activations) },
	{ "activation_checkpointing.synchronize_checkpoint_boundary", &flag,
	  ROLE(ONLY, 0, activations) },
	{ "activation_checkpointing.profile", &flag, ROLE(ONLY, 0, activations) },
	{ "activation_checkpointing.number_checkpoints", &count,
	  ROLE(MOOT, NAN, "no effect without contiguous_memory_optimization"), .nullable = true },
	{ "aio", .range = &section },
	{ "aio.block_size", &pages, SETTING(SIZE, shown.config.io_block),
	  .need = ZERO_NEEDS_FILES },
	{ "aio.queue_depth", &depth, SETTING(INT, shown.config.io_depth),
	  .need = ZERO_NEEDS_FILES },
	{ "aio.intra_op_parallelism", &count, ROLE(MOOT, 1, one_ring) },
	{ "aio.thread_count", &count, ROLE(MOOT, 1, one_ring) },
	{ "aio.single_submit", &flag, ROLE(MOOT, 0, one_ring) },
	{ "aio.overlap_events", &flag, ROLE(MOOT, 1, one_ring) },
	{ "aio.use_gds", &flag,
	  ROLE(ONLY, 0, "what is read and written passes through host memory") },
	{ "flops_profiler", .range = &section },
	{ "flops_profiler.enabled", &flag, ROLE(ONLY, 0, no_profiler) },
	{ "flops_profiler.profile_step", &count, ROLE(MOOT, 1, no_profile) },
	{ "flops_profiler.module_depth", &integer, ROLE(MOOT, -1, no_profile) },
	{ "flops_profiler.top_modules", &count, ROLE(MOOT, 1, no_profile) },
	{ "flops_profiler.detailed", &flag, ROLE(MOOT, 1, no_profile) },
	{ "flops_profiler.recompute_fwd_factor", &rate, ROLE(MOOT, 0, no_profile) },
	{ "flops_profiler.output_file", &text, ROLE(MOOT, NAN, no_profile), .nullable = true },
	{ "elasticity", .range = &section },
	{ "elasticity.enabled", &flag, ROLE(ONLY, 0, no_elasticity) },
	{ "elasticity.max_train_batch_size", &count, ROLE(MOOT, 2000, no_elastic_batch) },
	{ "elasticity.micro_batch_sizes", &list, ROLE(MOOT, NAN, no_elastic_batch) },
	{ "elasticity.min_gpus", &count, ROLE(MOOT, 1, no_elastic_batch) },
	{ "elasticity.max_gpus", &count, ROLE(MOOT, 10000, no_elastic_batch) },
	{ "elasticity.min_time", &natural, ROLE(MOOT, 0, no_elastic_batch) },
	{ "elasticity.prefer_larger_batch", &flag, ROLE(MOOT, 1, no_elastic_batch) },
	{ "elasticity.prefer_larger_batch_size", &flag, ROLE(MOOT, 1, no_elastic_batch) },
	{ "elasticity.ignore_non_elastic_batch_info", &flag, ROLE(MOOT, 0, no_elastic_batch) },
	{ "elasticity.num_gpus_per_node", &count, ROLE(MOOT, 1, no_elastic_batch) },
	{ "elasticity.model_parallel_size", &count, ROLE(MOOT, 1, no_elastic_batch) },
	{ "elasticity.version", &number, ROLE(MOOT, 0.2, no_elastic_batch) },

	{ "autotuning", &section, ROLE(OFF, 0, no_such_part) },
	{ "compression_training", &section, ROLE(OFF, 0, no_such_part) },
	{ "curriculum_learning", &section, ROLE(OFF, 0, no_such_part) },
	{ "data_efficiency", &section, ROLE(OFF, 0, no_such_part) },
	{ "eigenvalue", &section, ROLE(OFF, 0, no_such_part) },
	{ "hybrid_engine", &section, ROLE(OFF, 0, no_such_part) },
	{ "nebula", &section, ROLE(OFF, 0, no_such_part) },
	{ "pipeline", .range = &section },
	{ "pipeline.stages", &count_int, SETTING(INT, pipe), .automatic = ZERO_AUTO_PIPE },
	{ "pipeline.partition", &text, ROLE(MOOT, NAN, own_layers) },
	{ "pipeline.seed_layers", &flag,
	  ROLE(MOOT, 0, "no effect: the program gives tensors their first values") },
	{ "pipeline.activation_checkpoint_interval", &natural, ROLE(ONLY, 0, activations) },
	{ "pipeline.pipe_partitioned", &flag, ROLE(MOOT, 1, own_rows) },
	{ "pipeline.grad_partitioned", &flag, ROLE(MOOT, 1, own_rows) },
	{ "pipeline.use_reentrant", &flag,
	  ROLE(MOOT, 1, "no effect: activations are the model's own") },
	{ "progressive_layer_drop", &section, ROLE(OFF, 0, no_such_part) },
	{ "quantize_training", &section, ROLE(OFF, 0, no_such_part) },
	{ "sparse_attention", &section, ROLE(OFF, 0, no_such_part) },
	{ "tensor_parallel", .range = &section },
	{ "tensor_parallel.autotp_size", &natural_int, SETTING(INT, tensor),
	  .automatic = ZERO_AUTO_TENSOR },
	{ "tensor_parallel.tp_overlap_comm", &flag,
	  ROLE(MOOT, 0, "no effect: sums are not sent beside products") },
	{ "tensor_parallel.preset_model", &text, ROLE(MOOT, NAN, own_layers), .nullable = true },
	{ "tensor_parallel.partition_config", &section,
	  ROLE(OFF, 0, "layers are divided by the program: kolo_parallel.h") },
	{ "tensor_parallel.tp", .range = &section },
	{ "tensor_parallel.tp.tp_size", &count_int,
	  ROLE(ONLY, 1, "say it as tensor_parallel.autotp_size") },
	{ "tensor_parallel.tp.tp_grain_size", &count,
	  ROLE(MOOT, 1, "no effect: all parts are equal") },
	{ "weight_quantization", &section, ROLE(OFF, 0, no_such_part) },
};
const int zero_nkeys = sizeof(zero_keys) / sizeof(zero_keys[0]);

/* ---- Looking at it --------------------------------------------------------------------------- */

int zero_key_find(const char *path)
{
	for (int i = 0; i < zero_nkeys; i++)
		if (strcmp(zero_keys[i].path, path) == 0)
			return i;
	return -1;
}

bool zero_key_applies(const struct zero_key *key, const struct zero_settings *s)
{
	enum kolo_zero_optimizer chosen = (enum kolo_zero_optimizer)s->optimizer;

	return (!key->params || key->params & zero_optimizer_row(chosen)->params) &&
	       (!key->schedules || key->schedules >> s->schedule & 1);
}

const char *zero_range_choice(const struct zero_range *range, int i)
{
	if (i < range->low || i > range->high)
		return NULL;
	return range->choices ? range->choices[i] : range->choice(i);
}

bool zero_range_has(const struct zero_range *range, double x)
{
	return (range->above ? x > range->low : x >= range->low) &&
	       (range->below ? x < range->high : x <= range->high) && x > -INFINITY &&
	       x < INFINITY && (range->multiple == 0 || fmod(x, range->multiple) == 0);
}

struct zero_given *zero_given_of(const struct zero_reading *r, const char *path)
{
	return &r->given[zero_key_find(path)];
}

/* ---- What has no effect ---------------------------------------------------------------------- */

/* Why something that is offloaded to `place` stays where it is. NULL: it moves. */
static const char *why_not_offloaded(const struct zero_reading *r, int place)
{
	if (place == KOLO_ZERO_ON_DEVICE)
		return "no effect: nothing is offloaded";
	return place == KOLO_ZERO_ON_NVME || r->model->device
		       ? NULL
		       : "no effect: the engine and its state are in host memory";
}

static const char *why_not_copied(const struct zero_reading *r, int place)
{
	if (place == KOLO_ZERO_ON_DEVICE)
		return "no effect: nothing is offloaded";
	return r->model->device ? NULL : "no effect: an engine on the host needs no pinned memory";
}

static const char *why_not_files(bool files)
{
	return files ? NULL : "no effect: nothing is kept on NVMe";
}

const char *zero_key_idle(const struct zero_reading *r, const struct zero_key *key)
{
	const struct zero_settings *s = r->out;
	bool state = s->optimizer_place == KOLO_ZERO_ON_NVME,
	     params = s->param_place == KOLO_ZERO_ON_NVME;

	switch (key->need) {
	case ZERO_NEEDS_NOTHING: return NULL;
	case ZERO_NEEDS_STAGE_3:
		return s->shown.config.stage == 3 ? NULL : "no effect but at stage 3";
	case ZERO_NEEDS_OPTIMIZER_OFFLOADED: return why_not_offloaded(r, s->optimizer_place);
	case ZERO_NEEDS_OPTIMIZER_COPIED: return why_not_copied(r, s->optimizer_place);
	case ZERO_NEEDS_OPTIMIZER_FILES: return why_not_files(state);
	case ZERO_NEEDS_PARAM_OFFLOADED: return why_not_offloaded(r, s->param_place);
	case ZERO_NEEDS_PARAM_COPIED: return why_not_copied(r, s->param_place);
	case ZERO_NEEDS_PARAM_FILES: return why_not_files(params);
	case ZERO_NEEDS_FILES: return why_not_files(state || params);
	}
	return NULL;
}
