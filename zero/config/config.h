/* The reader of configs within: a table of all keys (keys.c), and what happens to a text on
 * its way to settings.
 *
 * The text's comments are blanked, so that lines and columns stay (source.c); jansson makes
 * a tree of it, in which every key must be one of the table (read.c); each value is checked
 * and goes to its place (values.c), then come the rules between keys (rules.c), and
 * the tree of what has come out is written as text (text.c). */
#ifndef ZERO_CONFIG_CONFIG_H
#define ZERO_CONFIG_CONFIG_H

#include "kolo/kolo_zero_config.h"
#include "zero/base/basics.h"

#include <stdbool.h>

/* What a caller has is the first member; the others are values that rules make something of, as
 * their keys give them. */
struct zero_settings {
	struct kolo_zero_settings shown;
	int optimizer, schedule; /* enum kolo_zero_optimizer, enum kolo_zero_schedule_type */
	int adam_w_mode;         /* -1: absent */
	int fp16, bf16;          /* enabled */
	double loss_scale;       /* of fp16 */
	int scale_power;
	int wire;                          /* the type of communication, index of its choices; -1: absent */
	int prescale;                      /* -1: absent */
	double predivide;                  /* 0: absent */
	size_t train, micro, accumulation; /* 0: absent, or "auto" and unknown */
	int optimizer_place, param_place;  /* enum kolo_zero_place */
	int old_pin;                       /* of cpu_offload_use_pin_memory; -1: absent */
	char *optimizer_path, *param_path;
	int csv;
	char *csv_folder, *csv_job;
	char *csv_path, *jsonl_path; /* what shown points to */
	char *text;
	char **notes;
	int nnotes;
};

/* ---- The table ------------------------------------------------------------------------------------------ */

enum zero_value_kind {
	ZERO_FLAG,
	ZERO_INTEGER, /* 2e8 is one, 2.5 is not */
	ZERO_NUMBER,
	ZERO_TEXT,
	ZERO_CHOICE, /* a text of a list; its value is the index */
	ZERO_BETAS,  /* a list of two numbers */
	ZERO_LIST,
	ZERO_SECTION,
};

/* What values a key may have: numbers from low to high. `above` and `below` exclude these two. */
struct zero_range {
	enum zero_value_kind kind;
	const char *want; /* the same in words; NULL of choices */
	double low, high;
	bool above, below;            /* low, or high, is excluded */
	double multiple;              /* only multiples of it; 0: any */
	const char *const *choices;   /* from low to high; NULL: */
	const char *(*choice)(int i); /* gives them */
	bool any_case;                /* of choices */
};

enum zero_role {
	ZERO_DONE,    /* the value goes to its place */
	ZERO_ONLY,    /* only the preset is possible, for the reason `why` */
	ZERO_MOOT,    /* any value does; `why` is the remark on one that is not the preset */
	ZERO_REFUSED, /* can't be given, for the reason `why` */
	ZERO_OFF, /* a section that may be there switched off only: null, empty, or with "enabled": false */
	ZERO_RENAMED, /* the old name of `other` */
	ZERO_OLD, /* the value goes to its place, and is shown by the keys that are meant now; `why` names them */
};

/* What "auto" stands for. */
enum zero_auto {
	ZERO_AUTO_NONE, /* nothing: an error */
	ZERO_AUTO_LR,
	ZERO_AUTO_BETAS,
	ZERO_AUTO_EPS,
	ZERO_AUTO_DECAY,
	ZERO_AUTO_CLIP,
	ZERO_AUTO_FP16,
	ZERO_AUTO_BF16,
	ZERO_AUTO_MICRO,
	ZERO_AUTO_ACCUMULATION,
	ZERO_AUTO_TRAIN,
	ZERO_AUTO_ZERO,
	ZERO_AUTO_WARMUP,
	ZERO_AUTO_TOTAL,
	ZERO_AUTO_BUCKET,      /* hidden^2 */
	ZERO_AUTO_PREFETCH,    /* 0.9 hidden^2 */
	ZERO_AUTO_PERSISTENCE, /* 10 hidden */
};

/* Without what a key has no effect. */
enum zero_need {
	ZERO_NEEDS_NOTHING,
	ZERO_NEEDS_STAGE_3,
	ZERO_NEEDS_OPTIMIZER_OFFLOADED, /* from a device, or in files */
	ZERO_NEEDS_OPTIMIZER_COPIED,    /* between a device and the host */
	ZERO_NEEDS_OPTIMIZER_FILES,
	ZERO_NEEDS_PARAM_OFFLOADED,
	ZERO_NEEDS_PARAM_COPIED,
	ZERO_NEEDS_PARAM_FILES,
	ZERO_NEEDS_FILES, /* of either */
};

enum zero_slot { ZERO_NOWHERE, ZERO_IN_INT, ZERO_IN_LONG, ZERO_IN_SIZE, ZERO_IN_DOUBLE, ZERO_IN_TEXT };

struct zero_key {
	const char *path; /* like "zero_optimization.stage" */
	const struct zero_range *range;
	enum zero_role role;
	double preset; /* DeepSpeed's default if it matters; NaN: none. Keys of ZERO_DONE have it in their place */
	const char *why;
	const char *other; /* a key of the same section that may not be given beside it */
	enum zero_slot slot;
	bool of_group; /* the place is in each group, else in struct zero_settings */
	size_t offset;
	enum zero_auto automatic;
	bool nullable;                  /* null is as if it were absent */
	bool lists;                     /* may be a list of a number for each group */
	enum zero_need need;            /* given without it, there is a remark */
	unsigned optimizers, schedules; /* bits 1 << type of those that have it; 0: all */
};

extern const struct zero_key zero_keys[];
extern const int zero_nkeys;

/* The index of a key, -1: none. */
int zero_key_find(const char *path);
/* Whether the chosen optimizer, and schedule, have the key. */
bool zero_key_applies(const struct zero_key *key, const struct zero_settings *settings);
/* The i-th choice; NULL if there is none. */
const char *zero_range_choice(const struct zero_range *range, int i);
bool zero_range_has(const struct zero_range *range, double value);

/* ---- A config being read -------------------------------------------------------------------------------- */

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

/* What the file has of a key. */
struct zero_given *zero_given_of(const struct zero_reading *r, const char *path);
/* Why a key has no effect beside those that were taken before. NULL: it has one. */
const char *zero_key_idle(const struct zero_reading *r, const struct zero_key *key);

/* ---- source.c ------------------------------------------------------------------------------------ */

/* The file as a text that the caller frees. Errors: KOLO_EINVAL, KOLO_ESYS, KOLO_ENOMEM. */
int zero_source_read(const char *path, char **out);
/* Turns the characters of comments into spaces. Errors: KOLO_EINVAL (one without end). */
int zero_source_blank(const char *name, char *text);
/* Errors at the key, or at its value, "NAME:LINE:COLUMN: PATH ..."; returns KOLO_EINVAL. */
int zero_refuse_key(const struct zero_reading *r, const char *path, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int zero_refuse_value(const struct zero_reading *r, const char *path, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Refuses the key that ends `end` bytes from the text's begin, and is there for the second
 * time. */
int zero_refuse_twice(const struct zero_reading *r, size_t end);
/* Adds a remark. Errors: KOLO_ENOMEM. */
int zero_note(const struct zero_reading *r, const char *path, const char *text);

/* ---- values.c ------------------------------------------------------------------------------------ */

enum { ZERO_SHOWN = 48, ZERO_NAMES = 256 };

/* A value as an error shows it. Returns out. */
const char *zero_show(const struct json_t *value, char out[ZERO_SHOWN]);
/* What values a key may have, in words. Returns out. */
const char *zero_want(const struct zero_range *range, char out[ZERO_NAMES]);
/* Checks what was given for a key, and does what its role says. Errors: KOLO_EINVAL,
 * KOLO_ENOMEM. */
int zero_take(const struct zero_reading *r, int key);
/* The keys of a section, which ends with a dot, that the chosen types have. */
void zero_list_names(const struct zero_reading *r, const char *section, char out[ZERO_NAMES]);
/* The value in a key's place; of group number `group` if the key is one of groups. */
double zero_place_get(const struct zero_settings *settings, const struct zero_key *key, int group);
/* The text in a key's place, NULL: none. */
const char *zero_place_text(const struct zero_settings *settings, const struct zero_key *key);

/* ---- rules.c, text.c ---------------------------------------------------------------------- */

/* The optimizer's and the schedule's presets, once their types are known. */
void zero_rules_begin(const struct zero_reading *r);
/* What holds between keys; makes config and groups complete. Errors: KOLO_EINVAL, KOLO_ENOMEM. */
int zero_rules_end(const struct zero_reading *r);

/* Writes settings->text. Errors: KOLO_ENOMEM. */
int zero_text_make(const struct zero_reading *r);

#endif
