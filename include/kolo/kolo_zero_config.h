/* Kolo ZeRO config: settings of an engine of kolo_zero.h from DeepSpeed's config file,
 * ds_config.json.
 *
 *     struct kolo_zero_model model;
 *     struct kolo_zero_settings *settings;
 *
 *     kolo_zero_model_init(&model);
 *     model.nranks = kolo_comm_nranks(comm);  and what else the program knows
 *     kolo_zero_settings_read("ds_config.json", &model, &settings);
 *     settings->groups[1].weight_decay = 0;   what the file can't say
 *     kolo_zero_create(comm, &settings->config, tensors, ntensors, &zero);
 *     kolo_zero_settings_destroy(settings);
 *
 * Keys: each key of DeepSpeed's has one of three outcomes. Its setting is applied. Or it needs
 * nothing, because the engine always does it or it has no effect; then kolo_zero_settings_note
 * has a remark. Or it is refused with the reason. A key that DeepSpeed does not have is refused,
 * too; the error names the nearest key. Two keys are Kolo's own, and DeepSpeed
 * ignores them. "reduction_order" is config.order, "ring", "tree" or "grid"; without it, or with
 * null, it is that of the communicator. "strict_gradients" is config.strict.
 *
 * Syntax: JSON, and comments: from // or # to the end of the line, or between the marks of C.
 * Nothing else of Hjson is accepted. Integers may be written like 2e8. "auto" stands for the
 * value in struct kolo_zero_model, if Hugging Face's trainer resolves "auto" for that key.
 *
 * Defaults: a key that is absent has DeepSpeed's default; for example gradient_clipping is 1. The
 * exceptions are:
 *
 * - overlap_comm: true at every stage.
 * - prescale_gradients: true, because a sum in 16 bits may overflow before it is divided.
 * - pin_memory of both offloads: true.
 * - reduce_bucket_size, allgather_bucket_size, sub_group_size, stage3_prefetch_bucket_size,
 *   stage3_param_persistence_threshold, stage3_max_live_parameters, stage3_max_reuse_distance,
 *   and max_in_cpu of offload_param: those of kolo_zero_config_init.
 * - Without "optimizer": AdamW with the hyper-parameters of the model description.
 * - Without "scheduler": the learning rate stays.
 *
 * Offload: offload_optimizer and offload_param become those of struct kolo_zero_config. The
 * program sets the device. Without a device, "cpu" changes nothing, because everything is in host
 * memory already; a remark says so. "nvme" works with and without a device.
 *
 * Grids: tensor_parallel.autotp_size and pipeline.stages are the sizes that the program gives to
 * kolo_grid_create. DeepSpeed reads the second in its PipelineModule only.
 *
 * The conventions of kolo.h hold here too. Nothing is sent to other ranks: all ranks read the
 * same file, and kolo_zero_create compares their configs. A build without the library jansson
 * can't read a config. */
#ifndef KOLO_KOLO_ZERO_CONFIG_H
#define KOLO_KOLO_ZERO_CONFIG_H

#include "kolo_zero.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* What a config can't know, and the values of "auto" in it. kolo_zero_model_init fills in the
 * defaults. */
struct kolo_zero_model {
	int nranks; /* all of them, of all replicas, tensor groups and stages. Default: 1. */
	/* Elements in a hidden state; bucket sizes follow from it. 0 (default): unknown. */
	size_t hidden;
	size_t micro_batch;  /* samples of a micro-step on a rank. 0 (default): unknown. */
	int accumulation;    /* micro-steps for each update. 0 (default): unknown. */
	size_t train_batch;  /* samples of an update on all ranks. 0 (default): unknown. */
	double lr;           /* the learning rate. Default: that of AdamW (kolo_zero_group_init). */
	double beta1, beta2; /* Adam, Lion and Lamb. Default: those of AdamW. */
	double eps;          /* Adam, Adagrad and Lamb. Default: that of AdamW. */
	double weight_decay; /* all optimizers. Default: that of AdamW. */
	double clip;         /* the largest norm of the gradient. Default: 1. */
	long warmup_steps;   /* updates in a schedule's warm-up. Default: 0. */
	long total_steps;    /* updates in a schedule. 0 (default): unknown. */
	enum kolo_type type; /* of the tensors: KOLO_F32 (default), KOLO_F16 or KOLO_BF16 */
	int ngroups;         /* groups of tensors with hyper-parameters of their own. Default: 1. */
	/* 1: the program sets config.device; 0: tensors are in host memory. Default: 0. */
	int device;
	/* The sizes of the grid, without the keys tensor_parallel.autotp_size and pipeline.stages,
	 * and their "auto". 0 (default): 1. */
	int tensor_size, pipe_size;
	uint64_t reserved[7]; /* zero */
};

/* What a config says. The memory is the library's, but the caller may change it, above all the
 * hyper-parameters of groups. */
struct kolo_zero_settings {
	struct kolo_zero_config config; /* for kolo_zero_create; its groups are the ones below */
	/* model.ngroups groups. They are equal, except if a schedule lists a number for each */
	struct kolo_zero_group *groups;
	enum kolo_type type;      /* of the tensors: KOLO_F32, KOLO_F16 or KOLO_BF16 */
	size_t train_batch;       /* samples of an update on all ranks */
	long steps_per_print;     /* updates between two lines of a log; 0: no lines */
	int wall_clock_breakdown; /* 1: the log shall have the times of kolo_zero_times_get */
	int memory_breakdown;     /* 1: the log shall have the memory of kolo_zero_memory_get */
	const char *csv_path;     /* the log's CSV file if csv_monitor is enabled, else NULL */
	const char *jsonl_path;   /* the log's JSON lines if csv_monitor is enabled, else NULL */
	/* The grid for kolo_grid_create, at least 1. The engine has nranks / (tensor_size *
	 * pipe_size) ranks, and batches count these */
	int tensor_size, pipe_size;
	uint64_t reserved[7]; /* zero */
};

/* Fills in the defaults of a model description. Never fails. */
void kolo_zero_model_init(struct kolo_zero_model *out);

/* Read a config: kolo_zero_settings_read from a file, kolo_zero_settings_parse from a text.
 * Local; reading the file blocks. The caller gives *out to kolo_zero_settings_destroy. After an
 * error *out is NULL.
 *
 * An error text is one line. It begins with the file's name ("config" for a text), the line and
 * the column:
 *
 *     ds_config.json:12:18: zero_optimization.stage is "two": want an
 *     integer from 0 to 3
 *
 * Errors:
 * - KOLO_EINVAL: names the key, its value and what it must be. Or it names the field of the model
 *   description that "auto" needs.
 * - KOLO_ESYS: the file can't be read.
 * - KOLO_ENOMEM: out of memory.
 * - KOLO_ENOTSUP: this build has no jansson. */
int kolo_zero_settings_read(const char *path, const struct kolo_zero_model *model,
			    struct kolo_zero_settings **out);
int kolo_zero_settings_parse(const char *text, const struct kolo_zero_model *model,
			     struct kolo_zero_settings **out);

/* The config as JSON, with "auto" resolved. It has every key that has an effect, and all other
 * keys that were given. Reading it gives the same settings and the same text. Changes that the
 * caller made are not in it. Valid until kolo_zero_settings_destroy. Never fails. */
const char *kolo_zero_settings_text(const struct kolo_zero_settings *settings);

/* Writes the text of kolo_zero_settings_text to a file. The file is written whole or not at all,
 * even after a loss of power. Local; blocks.
 *
 * Errors: KOLO_EINVAL, KOLO_ESYS, KOLO_ENOMEM. */
int kolo_zero_settings_write(const struct kolo_zero_settings *settings, const char *path);

/* The remark number `index`, from 0. A remark is about a key that needs nothing, or that does
 * something else than its reader may expect. Example: zero_optimization.round_robin_gradients
 * (line 9): already so. NULL after the last remark. Valid until kolo_zero_settings_destroy. Never
 * fails. */
const char *kolo_zero_settings_note(const struct kolo_zero_settings *settings, int index);

/* Frees settings. Engines that were made from them keep working. NULL is allowed. */
void kolo_zero_settings_destroy(struct kolo_zero_settings *settings);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
