/* Kolo: settings of an engine of kolo_zero.h from DeepSpeed's config file, ds_config.json.
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
 * A key of DeepSpeed's is done, is no more than what the engine always does or has no effect (kolo_zero_settings_note says
 * so), or is refused with the reason; any other is refused with the nearest one. Beside JSON a file may have comments: from
 * // or # to the end of the line, and between the marks of C; no other liberty of Hjson. "auto" stands for what struct kolo_zero_model says, where
 * Hugging Face's trainer resolves it. Integers may be written like 2e8.
 *
 * What is absent has DeepSpeed's default, a gradient_clipping of 1 among them, but for: overlap_comm (true at every stage),
 * prescale_gradients (true, since a sum in 16 bits may overflow before it is divided), and reduce_bucket_size,
 * allgather_bucket_size, sub_group_size, stage3_prefetch_bucket_size, stage3_param_persistence_threshold,
 * stage3_max_live_parameters, stage3_max_reuse_distance, offload_param's max_in_cpu, and pin_memory of both offloads (true),
 * which are those of kolo_zero_config_init. Without "optimizer" it is AdamW with the model description's hyper-parameters, without "scheduler" the
 * learning rate stays.
 *
 * offload_optimizer and offload_param become those of struct kolo_zero_config, whose device the program sets. Where it has none,
 * "cpu" is where everything is anyway, which a remark says; "nvme" is done.
 *
 * Conventions as in kolo.h. Nothing is printed, and nothing is told to other ranks: all read the same file, which
 * kolo_zero_create checks by its config. In a build without the library jansson nothing can be read. */
#ifndef KOLO_KOLO_ZERO_CONFIG_H
#define KOLO_KOLO_ZERO_CONFIG_H

#include "kolo_zero.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* What a config can't know, and what "auto" in it stands for; kolo_zero_model_init fills in the defaults. */
struct kolo_zero_model {
	int nranks;    /* 1 */
	size_t hidden; /* elements in a hidden state, from which sizes of buckets follow; 0: unknown. 0 */
	size_t micro_batch;   /* samples of a micro-step on a rank; 0: unknown. 0 */
	int accumulation;     /* micro-steps for each update; 0: unknown. 0 */
	size_t train_batch;   /* samples of an update on all ranks; 0: unknown. 0 */
	double lr;            /* these five: those of AdamW in kolo_zero_group_init */
	double beta1, beta2;  /* of Adam, Lion and Lamb */
	double eps;           /* of Adam, Adagrad and Lamb */
	double weight_decay;  /* of all */
	double clip;          /* the largest norm of the gradient; 1 */
	long warmup_steps;    /* of a schedule; 0 */
	long total_steps;     /* of a schedule; 0: unknown. 0 */
	enum kolo_type type;  /* of the tensors: KOLO_F32, KOLO_F16 or KOLO_BF16; KOLO_F32 */
	int ngroups;          /* groups of tensors with hyper-parameters of their own; 1 */
	int device;           /* 1: the program sets config.device; 0: tensors are in host memory. 0 */
	uint64_t reserved[8]; /* zero */
};

/* What a config says. The library's memory, but the caller may change it: each group's hyper-parameters, above all. */
struct kolo_zero_settings {
	struct kolo_zero_config config; /* for kolo_zero_create; its groups are these: */
	struct kolo_zero_group
		*groups;          /* model.ngroups; equal, but where a schedule lists a number for each */
	enum kolo_type type;      /* that tensors are to have: KOLO_F32, KOLO_F16 or KOLO_BF16 */
	size_t train_batch;       /* samples of an update on all ranks */
	long steps_per_print;     /* updates from one line of a log to the next; 0: no lines */
	int wall_clock_breakdown; /* 1: the log is to have what kolo_zero_times_get tells, */
	int memory_breakdown;     /* and 1: what kolo_zero_memory_get tells */
	const char *csv_path;     /* a file for the log where csv_monitor is enabled, else NULL; */
	const char *jsonl_path;   /* the same for one in the form of JSON */
	uint64_t reserved[8];     /* zero */
};

/* The defaults of a model description. Never fails. */
void kolo_zero_model_init(struct kolo_zero_model *out);

/* Reads a config from a file, or from a text. Blocks for the file; local. The caller gives *out to kolo_zero_settings_destroy.
 * An error begins with the file's name, "config" for a text, the line and the column, as in
 * ds_config.json:12:18: zero_optimization.stage is "two": want an integer from 0 to 3
 *
 * Errors: KOLO_EINVAL (names the key, what it is and what it has to be, or the field of the model description that "auto"
 * needs), KOLO_ESYS (the file can't be read), KOLO_ENOMEM, KOLO_ENOTSUP (no jansson in this build); then *out is NULL. */
int kolo_zero_settings_read(const char *path, const struct kolo_zero_model *model,
			    struct kolo_zero_settings **out);
int kolo_zero_settings_parse(const char *text, const struct kolo_zero_model *model,
			     struct kolo_zero_settings **out);

/* The config as JSON, with "auto" resolved: every key that has an effect, and all others that were given. Reading it again gives
 * the same settings and the same text. Without changes that the caller made. Valid until kolo_zero_settings_destroy; never
 * fails. */
const char *kolo_zero_settings_text(const struct kolo_zero_settings *settings);

/* Writes that text to a file, which is there in whole or not at all, also after a loss of power. Blocks.
 * Errors: KOLO_EINVAL, KOLO_ESYS, KOLO_ENOMEM. */
int kolo_zero_settings_write(const struct kolo_zero_settings *settings, const char *path);

/* The remark number `index`, from 0, on a key that needs nothing done, or does something else than its reader may expect, like
 * zero_optimization.round_robin_gradients (line 9): already so. NULL behind the last. Valid until
 * kolo_zero_settings_destroy; never fails. */
const char *kolo_zero_settings_note(const struct kolo_zero_settings *settings, int index);

/* Frees settings, from which engines may have been made. NULL is allowed. */
void kolo_zero_settings_destroy(struct kolo_zero_settings *settings);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
