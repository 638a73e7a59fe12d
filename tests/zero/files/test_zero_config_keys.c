/* Every key that DeepSpeed's configs may have: taken with a value that it may have, refused by name
 * with one that it may not have, and never ignored. The list is DeepSpeed's; the library's table
 * has to have the same keys. */
#include "tests/lib/t.h"
#include "zero/config/keys.h"

#include "kolo/kolo_zero_config.h"

#include <stdio.h>
#include <string.h>

/* What is needed beside a key: the type of its optimizer or schedule, other keys of the same
 * section, a stage. */
static const struct key {
	const char *path, *value; /* NULL: refused with any */
	const char *type, *beside;
	int stage; /* of ZeRO */
} keys[] = {
	{ "train_batch_size", .value = "2" },
	{ "train_micro_batch_size_per_gpu", .value = "1" },
	{ "gradient_accumulation_steps", .value = "1" },
	{ "gradient_clipping", .value = "0.5" },
	{ "prescale_gradients", .value = "true" },
	{ "gradient_predivide_factor", .value = "0.5" },
	{ "gradient_allreduce_op", .value = "\"mean\"" },
	{ "reduction_order", .value = "\"tree\"" },
	{ "strict_gradients", .value = "true" },
	{ "communication_data_type", .value = "\"fp32\"" },
	{ "seq_parallel_communication_data_type", .value = "\"fp32\"" },
	{ "sparse_gradients", .value = "false" },
	{ "fp32_allreduce", .value = "false" },
	{ "disable_allgather", .value = "false" },
	{ "steps_per_print", .value = "1" },
	{ "wall_clock_breakdown", .value = "true" },
	{ "memory_breakdown", .value = "true" },
	{ "dump_state", .value = "true" },
	{ "dataloader_drop_last", .value = "false" },
	{ "zero_allow_untested_optimizer", .value = "true" },
	{ "zero_force_ds_cpu_optimizer", .value = "true" },
	{ "managed_gradient_accumulation", .value = "true" },
	{ "use_data_before_expert_parallelism", .value = "false" },
	{ "vocabulary_size", .value = "1" },
	{ "zero_optimization", .value = "{}" },
	{ "zero_optimization.stage", .value = "3" },
	{ "zero_optimization.contiguous_gradients", .value = "true" },
	{ "zero_optimization.reduce_scatter", .value = "true" },
	{ "zero_optimization.reduce_bucket_size", .value = "1024" },
	{ "zero_optimization.use_multi_rank_bucket_allreduce", .value = "true" },
	{ "zero_optimization.allgather_partitions", .value = "true" },
	{ "zero_optimization.allgather_bucket_size", .value = "1" },
	{ "zero_optimization.overlap_comm", .value = "true" },
	{ "zero_optimization.load_from_fp32_weights", .value = "true" },
	{ "zero_optimization.elastic_checkpoint", .value = "false" },
	{ "zero_optimization.offload_param", .value = "{}" },
	{ "zero_optimization.offload_param.device", .value = "\"cpu\"", .stage = 3 },
	{ "zero_optimization.offload_param.nvme_path", .value = "\"a\"" },
	{ "zero_optimization.offload_param.buffer_count", .value = "2" },
	{ "zero_optimization.offload_param.buffer_size", .value = "1" },
	{ "zero_optimization.offload_param.max_in_cpu", .value = "0" },
	{ "zero_optimization.offload_param.pin_memory", .value = "true" },
	{ "zero_optimization.offload_optimizer", .value = "{}" },
	{ "zero_optimization.offload_optimizer.device", .value = "\"cpu\"", .stage = 1 },
	{ "zero_optimization.offload_optimizer.nvme_path", .value = "\"a\"" },
	{ "zero_optimization.offload_optimizer.buffer_count", .value = "2" },
	{ "zero_optimization.offload_optimizer.pin_memory", .value = "true" },
	{ "zero_optimization.offload_optimizer.pipeline", .value = "true" },
	{ "zero_optimization.offload_optimizer.pipeline_read", .value = "true" },
	{ "zero_optimization.offload_optimizer.pipeline_write", .value = "true" },
	{ "zero_optimization.offload_optimizer.fast_init", .value = "true" },
	{ "zero_optimization.offload_optimizer.ratio", .value = "0.5" },
	{ "zero_optimization.offload_optimizer.super_offload", .value = "false" },
	{ "zero_optimization.offload_optimizer.cpuadam_cores_perc", .value = "0.5" },
	{ "zero_optimization.cpu_offload", .value = "true", .stage = 1 },
	{ "zero_optimization.cpu_offload_param", .value = "true", .stage = 3 },
	{ "zero_optimization.cpu_offload_use_pin_memory", .value = "true" },
	{ "zero_optimization.sub_group_size", .value = "0" },
	{ "zero_optimization.stage3_prefetch_bucket_size", .value = "0" },
	{ "zero_optimization.stage3_param_persistence_threshold", .value = "0" },
	{ "zero_optimization.stage3_model_persistence_threshold", .value = "9223372036854775807" },
	{ "zero_optimization.stage3_max_live_parameters", .value = "0" },
	{ "zero_optimization.stage3_max_reuse_distance", .value = "0" },
	{ "zero_optimization.stage3_gather_16bit_weights_on_model_save", .value = "true" },
	{ "zero_optimization.stage3_gather_fp16_weights_on_model_save", .value = "true" },
	{ "zero_optimization.stage3_module_granularity_threshold", .value = "0" },
	{ "zero_optimization.stage3_use_all_reduce_for_fetch_params", .value = "false" },
	{ "zero_optimization.stage3_allgather_sequential", .value = "false" },
	{ "zero_optimization.ignore_unused_parameters", .value = "true" },
	{ "zero_optimization.legacy_stage1", .value = "false" },
	{ "zero_optimization.round_robin_gradients", .value = "true" },
	{ "zero_optimization.zero_hpz_partition_size", .value = "1" },
	{ "zero_optimization.zero_quantized_weights", .value = "false" },
	{ "zero_optimization.zero_quantized_nontrainable_weights", .value = "false" },
	{ "zero_optimization.zero_quantized_gradients", .value = "false" },
	{ "zero_optimization.zeropp_loco_param", .value = "null" },
	{ "zero_optimization.mics_shard_size", .value = "-1" },
	{ "zero_optimization.mics_hierarchical_params_gather", .value = "false" },
	{ "zero_optimization.memory_efficient_linear", .value = "true" },
	{ "zero_optimization.pipeline_loading_checkpoint", .value = "false" },
	{ "zero_optimization.override_module_apply", .value = "true" },
	{ "zero_optimization.log_trace_cache_warnings", .value = "true" },
	{ "zero_optimization.enable_sanity_checks", .value = "true" },
	{ "zero_optimization.save_muon_momentum_buffer_in_memory", .value = "false" },
	{ "zero_optimization.zenflow", .value = "null" },
	{ "fp16", .value = "{}" },
	{ "fp16.enabled", .value = "true" },
	{ "fp16.loss_scale", .value = "0.5" },
	{ "fp16.initial_scale_power", .value = "16" },
	{ "fp16.loss_scale_window", .value = "1" },
	{ "fp16.hysteresis", .value = "1" },
	{ "fp16.consecutive_hysteresis", .value = "true" },
	{ "fp16.min_loss_scale", .value = "0.5" },
	{ "fp16.auto_cast", .value = "false" },
	{ "fp16.fp16_master_weights_and_grads", .value = "false" },
	{ "bf16", .value = "{}" },
	{ "bf16.enabled", .value = "true" },
	{ "bf16.immediate_grad_update", .value = "true" },
	{ "bf16.check_grad_overflow", .value = "true" },
	{ "bf16.bf16_master_weights_and_grads", .value = "false" },
	{ "bf16.bf16_optimizer_states", .value = "false" },
	{ "bfloat16", .value = "{}" },
	{ "amp", .value = "{}" },
	{ "data_types", .value = "{}" },
	{ "data_types.grad_accum_dtype", .value = "\"fp32\"" },
	{ "optimizer", .value = "{\"type\": \"SGD\"}" },
	{ "optimizer.type", .value = "\"Lion\"" },
	{ "optimizer.legacy_fusion", .value = "true", .type = "SGD" },
	{ "optimizer.params", .value = "{}", .type = "SGD" },
	{ "optimizer.params.lr", .value = "0.5", .type = "AdamW" },
	{ "optimizer.params.betas", .value = "[0.5, 0.75]", .type = "Adam" },
	{ "optimizer.params.eps", .value = "0.5", .type = "Adam" },
	{ "optimizer.params.weight_decay", .value = "0.5", .type = "AdamW" },
	{ "optimizer.params.momentum", .value = "0.5", .type = "SGD" },
	{ "optimizer.params.dampening", .value = "0.5", .type = "SGD" },
	{ "optimizer.params.nesterov", .value = "true", .type = "SGD",
	  .beside = "\"momentum\": 0.5, " },
	{ "optimizer.params.lr_decay", .value = "0.5", .type = "Adagrad" },
	{ "optimizer.params.initial_accumulator_value", .value = "0.5", .type = "Adagrad" },
	{ "optimizer.params.adam_w_mode", .value = "true", .type = "Adam" },
	{ "optimizer.params.torch_adam", .value = "true", .type = "Adam" },
	{ "optimizer.params.bias_correction", .value = "true", .type = "Adam" },
	{ "optimizer.params.amsgrad", .value = "false", .type = "Adam" },
	{ "optimizer.params.eps_inside_sqrt", .value = "false", .type = "Lamb" },
	{ "optimizer.params.max_coeff", .value = NULL, .type = "Lamb" },
	{ "optimizer.params.min_coeff", .value = NULL, .type = "Lamb" },
	{ "optimizer.params.maximize", .value = "false", .type = "Adam" },
	{ "optimizer.params.fused", .value = "true", .type = "Adam" },
	{ "optimizer.params.foreach", .value = "true", .type = "Adam" },
	{ "optimizer.params.capturable", .value = "true", .type = "Adam" },
	{ "optimizer.params.differentiable", .value = "false", .type = "Adam" },
	{ "optimizer.params.set_grad_none", .value = "true", .type = "Adam" },
	{ "optimizer.params.fp32_optimizer_states", .value = "true", .type = "Adam" },
	{ "optimizer.params.max_grad_norm", .value = NULL, .type = "AdamW" },
	{ "scheduler", .value = "{\"type\": \"WarmupLR\"}" },
	{ "scheduler.type", .value = "\"WarmupLR\"" },
	{ "scheduler.params", .value = "{}", .type = "WarmupLR" },
	{ "scheduler.params.warmup_min_lr", .value = "0.5", .type = "WarmupLR" },
	{ "scheduler.params.warmup_max_lr", .value = "0.5", .type = "WarmupLR" },
	{ "scheduler.params.warmup_num_steps", .value = "0", .type = "WarmupLR" },
	{ "scheduler.params.total_num_steps", .value = "2000", .type = "WarmupDecayLR" },
	{ "scheduler.params.warmup_type", .value = "\"linear\"", .type = "WarmupLR" },
	{ "scheduler.params.warmup_min_ratio", .value = "0.5", .type = "WarmupCosineLR",
	  .beside = "\"total_num_steps\": 9999, " },
	{ "scheduler.params.cos_min_ratio", .value = "0.5", .type = "WarmupCosineLR",
	  .beside = "\"total_num_steps\": 9999, " },
	{ "scheduler.params.cycle_min_lr", .value = "0.5", .type = "OneCycle",
	  .beside = "\"cycle_max_lr\": 1, " },
	{ "scheduler.params.cycle_max_lr", .value = "0.5", .type = "OneCycle",
	  .beside = "\"cycle_min_lr\": 0.25, " },
	{ "scheduler.params.decay_lr_rate", .value = "0.5", .type = "OneCycle",
	  .beside = "\"cycle_min_lr\": 1, \"cycle_max_lr\": 1, " },
	{ "scheduler.params.cycle_first_step_size", .value = "1", .type = "OneCycle",
	  .beside = "\"cycle_min_lr\": 1, \"cycle_max_lr\": 1, " },
	{ "scheduler.params.cycle_second_step_size", .value = "1", .type = "OneCycle",
	  .beside = "\"cycle_min_lr\": 1, \"cycle_max_lr\": 1, " },
	{ "scheduler.params.cycle_first_stair_count", .value = "0", .type = "OneCycle",
	  .beside = "\"cycle_min_lr\": 1, \"cycle_max_lr\": 1, " },
	{ "scheduler.params.cycle_second_stair_count", .value = "0", .type = "OneCycle",
	  .beside = "\"cycle_min_lr\": 1, \"cycle_max_lr\": 1, " },
	{ "scheduler.params.decay_step_size", .value = "0", .type = "OneCycle",
	  .beside = "\"cycle_min_lr\": 1, \"cycle_max_lr\": 1, " },
	{ "scheduler.params.cycle_momentum", .value = "true", .type = "OneCycle",
	  .beside = "\"cycle_min_lr\": 1, \"cycle_max_lr\": 1, " },
	{ "scheduler.params.cycle_min_mom", .value = "0.5", .type = "OneCycle",
	  .beside = "\"cycle_min_lr\": 1, \"cycle_max_lr\": 1, " },
	{ "scheduler.params.cycle_max_mom", .value = "0.9", .type = "OneCycle",
	  .beside = "\"cycle_min_lr\": 1, \"cycle_max_lr\": 1, " },
	{ "scheduler.params.decay_mom_rate", .value = "0.5", .type = "OneCycle",
	  .beside = "\"cycle_min_lr\": 1, \"cycle_max_lr\": 1, " },
	{ "scheduler.params.lr_range_test_min_lr", .value = "0.5", .type = "LRRangeTest" },
	{ "scheduler.params.lr_range_test_step_size", .value = "1", .type = "LRRangeTest" },
	{ "scheduler.params.lr_range_test_step_rate", .value = "0.5", .type = "LRRangeTest" },
	{ "scheduler.params.lr_range_test_staircase", .value = "true", .type = "LRRangeTest" },
	{ "scheduler.params.last_batch_iteration", .value = "-1", .type = "WarmupLR" },
	{ "csv_monitor", .value = "{}" },
	{ "csv_monitor.enabled", .value = "true" },
	{ "csv_monitor.output_path", .value = "\"a\"" },
	{ "csv_monitor.job_name", .value = "\"a\"" },
	{ "tensorboard", .value = "{}" },
	{ "tensorboard.enabled", .value = "false" },
	{ "tensorboard.output_path", .value = "\"a\"" },
	{ "tensorboard.job_name", .value = "\"a\"" },
	{ "wandb", .value = "{}" },
	{ "wandb.enabled", .value = "false" },
	{ "wandb.group", .value = "\"a\"" },
	{ "wandb.team", .value = "\"a\"" },
	{ "wandb.project", .value = "\"a\"" },
	{ "comet", .value = "{}" },
	{ "comet.enabled", .value = "false" },
	{ "comet.samples_log_interval", .value = "1" },
	{ "comet.project", .value = "\"a\"" },
	{ "comet.workspace", .value = "\"a\"" },
	{ "comet.api_key", .value = "\"a\"" },
	{ "comet.experiment_name", .value = "\"a\"" },
	{ "comet.experiment_key", .value = "\"a\"" },
	{ "comet.online", .value = "true" },
	{ "comet.mode", .value = "\"a\"" },
	{ "comms_logger", .value = "{}" },
	{ "comms_logger.enabled", .value = "false" },
	{ "comms_logger.verbose", .value = "true" },
	{ "comms_logger.prof_all", .value = "true" },
	{ "comms_logger.debug", .value = "true" },
	{ "comms_logger.prof_ops", .value = "[]" },
	{ "checkpoint", .value = "{}" },
	{ "checkpoint.tag_validation", .value = "\"Fail\"" },
	{ "checkpoint.load_universal", .value = "false" },
	{ "checkpoint.use_node_local_storage", .value = "false" },
	{ "checkpoint.parallel_write", .value = "{}" },
	{ "checkpoint.parallel_write.pipeline_stage", .value = "false" },
	{ "activation_checkpointing", .value = "{}" },
	{ "activation_checkpointing.partition_activations", .value = "false" },
	{ "activation_checkpointing.contiguous_memory_optimization", .value = "false" },
	{ "activation_checkpointing.cpu_checkpointing", .value = "false" },
	{ "activation_checkpointing.synchronize_checkpoint_boundary", .value = "false" },
	{ "activation_checkpointing.profile", .value = "false" },
	{ "activation_checkpointing.number_checkpoints", .value = "1" },
	{ "aio", .value = "{}" },
	{ "aio.block_size", .value = "4096" },
	{ "aio.queue_depth", .value = "1" },
	{ "aio.intra_op_parallelism", .value = "1" },
	{ "aio.thread_count", .value = "1" },
	{ "aio.single_submit", .value = "true" },
	{ "aio.overlap_events", .value = "true" },
	{ "aio.use_gds", .value = "false" },
	{ "flops_profiler", .value = "{}" },
	{ "flops_profiler.enabled", .value = "false" },
	{ "flops_profiler.profile_step", .value = "1" },
	{ "flops_profiler.module_depth", .value = "-1" },
	{ "flops_profiler.top_modules", .value = "1" },
	{ "flops_profiler.detailed", .value = "true" },
	{ "flops_profiler.recompute_fwd_factor", .value = "0.5" },
	{ "flops_profiler.output_file", .value = "\"a\"" },
	{ "elasticity", .value = "{}" },
	{ "elasticity.enabled", .value = "false" },
	{ "elasticity.max_train_batch_size", .value = "1" },
	{ "elasticity.micro_batch_sizes", .value = "[]" },
	{ "elasticity.min_gpus", .value = "1" },
	{ "elasticity.max_gpus", .value = "1" },
	{ "elasticity.min_time", .value = "0" },
	{ "elasticity.prefer_larger_batch", .value = "true" },
	{ "elasticity.prefer_larger_batch_size", .value = "true" },
	{ "elasticity.ignore_non_elastic_batch_info", .value = "true" },
	{ "elasticity.num_gpus_per_node", .value = "1" },
	{ "elasticity.model_parallel_size", .value = "1" },
	{ "elasticity.version", .value = "0.5" },
	{ "autotuning", .value = "{}" },
	{ "compression_training", .value = "{}" },
	{ "curriculum_learning", .value = "{}" },
	{ "data_efficiency", .value = "{}" },
	{ "eigenvalue", .value = "{}" },
	{ "hybrid_engine", .value = "{}" },
	{ "nebula", .value = "{}" },
	{ "pipeline", .value = "{}" },
	{ "pipeline.stages", .value = "1" },
	{ "pipeline.partition", .value = "\"best\"" },
	{ "pipeline.seed_layers", .value = "false" },
	{ "pipeline.activation_checkpoint_interval", .value = "0" },
	{ "pipeline.pipe_partitioned", .value = "true" },
	{ "pipeline.grad_partitioned", .value = "true" },
	{ "pipeline.use_reentrant", .value = "true" },
	{ "progressive_layer_drop", .value = "{}" },
	{ "quantize_training", .value = "{}" },
	{ "sparse_attention", .value = "{}" },
	{ "tensor_parallel", .value = "{}" },
	{ "tensor_parallel.autotp_size", .value = "1" },
	{ "tensor_parallel.tp_overlap_comm", .value = "false" },
	{ "tensor_parallel.preset_model", .value = "\"llama\"" },
	{ "tensor_parallel.partition_config", .value = "{}" },
	{ "tensor_parallel.tp", .value = "{}" },
	{ "tensor_parallel.tp.tp_size", .value = "1" },
	{ "tensor_parallel.tp.tp_grain_size", .value = "1" },
	{ "weight_quantization", .value = "{}" },
};

/* A config with this key alone, but for what it needs, in line 2. */
static void compose(char *out, size_t room, const struct key *k, const char *value)
{
	const char *path = k->path, *dot;
	size_t len = (size_t)snprintf(
		out, room, "{%s\n",
		strcmp(path, "train_batch_size") == 0 ? "" : "\"train_batch_size\": 2,");
	int depth = 1;

	for (; (dot = strchr(path, '.')); path = dot + 1, depth++) {
		len += (size_t)snprintf(out + len, room - len, "\"%.*s\": {", (int)(dot - path),
					path);
		if (depth == 1 && k->type)
			len += (size_t)snprintf(out + len, room - len, "\"type\": \"%s\", ",
						k->type);
		if (depth == 1 && k->stage)
			len += (size_t)snprintf(out + len, room - len, "\"stage\": %d, ", k->stage);
	}
	len += (size_t)snprintf(out + len, room - len, "%s\"%s\": %s", k->beside ? k->beside : "",
				path, value);
	for (; depth > 0; depth--)
		len += (size_t)snprintf(out + len, room - len, "}");
	CHECK(len < room);
}

static struct kolo_zero_model full_model(void)
{
	struct kolo_zero_model m;

	kolo_zero_model_init(&m);
	m.hidden = 64;
	m.micro_batch = 2;
	m.total_steps = 2000;
	return m;
}

static void check_taken(const struct key *k, const char *text, int device)
{
	struct kolo_zero_model m = full_model();
	struct kolo_zero_settings *s, *again;

	m.device = device;
	if (kolo_zero_settings_parse(text, &m, &s) < 0)
		printf("# %s\n", text);
	CHECK(s != NULL);
	/* What has come out comes out again. */
	CHECK(kolo_zero_settings_parse(kolo_zero_settings_text(s), &m, &again) == 0);
	CHECK(strcmp(kolo_zero_settings_text(s), kolo_zero_settings_text(again)) == 0);
	kolo_zero_settings_destroy(again);
	/* It is in the text, or a remark tells of it. */
	if (!strstr(kolo_zero_settings_text(s),
		    strrchr(k->path, '.') ? strrchr(k->path, '.') + 1 : k->path) &&
	    strcmp(k->value, "{}") != 0)
		CHECK(kolo_zero_settings_note(s, 0) != NULL);
	kolo_zero_settings_destroy(s);
}

static void check_refused(const struct key *k, const char *text)
{
	struct kolo_zero_model m = full_model();
	struct kolo_zero_settings *s;
	char path[160];

	CHECK(kolo_zero_settings_parse(text, &m, &s) == KOLO_EINVAL && !s);
	snprintf(path, sizeof(path), ": %s ", k->path);
	if (!strstr(kolo_last_error(), path))
		printf("# %s\n", text);
	CHECK(strstr(kolo_last_error(), path) && strncmp(kolo_last_error(), "config:2:", 9) == 0);
}

static void every_key_is_taken_with_a_value_it_may_have(void **state)
{
	char text[400];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		compose(text, sizeof(text), &keys[i], keys[i].value ? keys[i].value : "0.5");
		for (int device = 0; keys[i].value && device < 2; device++)
			check_taken(&keys[i], text, device);
		if (!keys[i].value)
			check_refused(&keys[i], text);
	}
}

static void every_key_is_refused_by_name_with_another_kind_of_value(void **state)
{
	char text[400];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		bool section = keys[i].value &&
			       (keys[i].value[0] == '{' || strcmp(keys[i].value, "null") == 0);

		compose(text, sizeof(text), &keys[i], section ? "1" : "{}");
		check_refused(&keys[i], text);
	}
}

static void auto_is_resolved_or_refused_by_name(void **state)
{
	struct kolo_zero_model m = full_model();
	int resolved = 0;
	char text[400];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		struct kolo_zero_settings *s;
		int k = zero_key_find(keys[i].path);

		if (zero_keys[k].range->kind == ZERO_TEXT) /* a name like any other */
			continue;
		compose(text, sizeof(text), &keys[i], "\"auto\"");
		if (kolo_zero_settings_parse(text, &m, &s) < 0) {
			check_refused(&keys[i], text);
			continue;
		}
		CHECK(zero_keys[k].automatic != ZERO_AUTO_NONE &&
		      !strstr(kolo_zero_settings_text(s), "\"auto\""));
		kolo_zero_settings_destroy(s);
		resolved++;
	}
	printf("# %d are resolved\n", resolved);
	CHECK(resolved == 18);
}

static void the_table_has_these_keys_and_no_others(void **state)
{
	(void)state;
	printf("# %zu keys\n", ARRAY_LEN(keys));
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		CHECK(zero_key_find(keys[i].path) >= 0);
	CHECK((size_t)zero_nkeys == ARRAY_LEN(keys));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_key_is_taken_with_a_value_it_may_have),
	cmocka_unit_test(every_key_is_refused_by_name_with_another_kind_of_value),
	cmocka_unit_test(auto_is_resolved_or_refused_by_name),
	cmocka_unit_test(the_table_has_these_keys_and_no_others),
};

T_MAIN(tests)
