/* A config that is being read: what all files of this room share. kolo_zero_settings_read and
 * _parse are in read.c. What a text goes through on its way to settings:
 *
 *   1. source.c blanks its comments. Lines and columns stay.
 *   2. jansson makes a tree of it. read.c looks up each key of the tree in the table (keys.c).
 *   3. values.c checks each value and puts it into its place.
 *   4. rules.c applies the rules between keys.
 *   5. text.c writes the resolved config. */
#ifndef ZERO_CONFIG_CONFIG_H
#define ZERO_CONFIG_CONFIG_H

#include "kolo/kolo_zero_config.h"
#include "zero/base/basics.h"

#include <stdbool.h>

/* The caller sees the first member. The others are values as their keys give them, for the rules to
 * use. */
struct zero_settings {
	struct kolo_zero_settings shown;
	int optimizer, schedule; /* enum kolo_zero_optimizer, enum kolo_zero_schedule_type */
	int adam_w_mode;         /* -1: absent */
	int fp16, bf16;          /* enabled */
	double loss_scale;       /* fp16.loss_scale */
	int scale_power;
	int wire;                          /* index of communication_data_type; -1: absent */
	int order;                         /* index of reduction_order; -1: absent */
	int prescale;                      /* -1: absent */
	int tensor;                        /* tensor_parallel.autotp_size; -1: absent */
	int pipe;                          /* pipeline.stages; 0: absent */
	double predivide;                  /* 0: absent */
	size_t train, micro, accumulation; /* 0: absent, or "auto" and unknown */
	int optimizer_place, param_place;  /* enum kolo_zero_place */
	int old_pin;                       /* cpu_offload_use_pin_memory; -1: absent */
	char *optimizer_path, *param_path;
	int csv;
	char *csv_folder, *csv_job;
	char *csv_path, *jsonl_path; /* shown.csv_path and shown.jsonl_path point to these */
	char *text;
	char **notes;
	int nnotes;
};

enum { ZERO_PATH = 128 }; /* bytes of a path of keys; unknown ones are cut */

/* What the file has of a key of the table. */
struct zero_given {
	struct json_t *value; /* NULL: nothing; the tree's */
	char path[ZERO_PATH]; /* as the file spells it */
};

struct zero_reading {
	const char *name; /* of the file, or "config" */
	char *text;       /* without comments */
	struct json_t *root;
	const struct kolo_zero_model *model;
	struct zero_settings *out;
	struct zero_given *given; /* of each key of the table */
};

#endif
