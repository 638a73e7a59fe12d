/* The table of DeepSpeed's keys: what values each may have, and what becomes of them. */
#ifndef ZERO_CONFIG_KEYS_H
#define ZERO_CONFIG_KEYS_H

#include <stdbool.h>
#include <stddef.h>

struct zero_given;
struct zero_reading;
struct zero_settings;

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

/* What values a key may have: numbers from low to high. `above` and `below` exclude low and
 * high. */
struct zero_range {
	enum zero_value_kind kind;
	const char *want; /* the range in words; NULL for choices */
	double low, high;
	bool above, below;          /* x > low; x < high */
	double multiple;            /* only multiples of it; 0: any */
	const char *const *choices; /* their names, from low to high; NULL: `choice` returns them */
	const char *(*choice)(int i); /* the name of a choice */
	bool any_case;                /* letters of a choice may be small or large */
};

enum zero_role {
	ZERO_DONE,    /* the value goes to its place */
	ZERO_ONLY,    /* only the preset is possible, for the reason `why` */
	ZERO_MOOT,    /* any value is taken; `why` is the remark on one that is not the preset */
	ZERO_REFUSED, /* the key is refused, for the reason `why` */
	ZERO_OFF,     /* a section that must be off: null, empty, or with "enabled": false */
	ZERO_RENAMED, /* the old name of `other` */
	ZERO_OLD,     /* an old form: goes to its place; `why` names the new key, which is shown */
};

/* What "auto" stands for. */
enum zero_auto {
	ZERO_AUTO_NONE, /* nothing: "auto" is refused */
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
	ZERO_AUTO_BUCKET,      /* hidden^2, or the least that kolo_zero_create takes */
	ZERO_AUTO_PREFETCH,    /* 0.9 hidden^2 */
	ZERO_AUTO_PERSISTENCE, /* 10 hidden */
	ZERO_AUTO_TENSOR,      /* tensor_size, at least 1; and pipe_size: */
	ZERO_AUTO_PIPE,
};

/* What a key needs to have an effect. */
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

enum zero_slot {
	ZERO_NOWHERE,
	ZERO_IN_INT,
	ZERO_IN_LONG,
	ZERO_IN_SIZE,
	ZERO_IN_DOUBLE,
	ZERO_IN_TEXT
};

struct zero_key {
	const char *path; /* like "zero_optimization.stage" */
	const struct zero_range *range;
	enum zero_role role;
	double preset; /* DeepSpeed's default, if it matters; NaN: none. For ZERO_DONE the place has
			  it */
	const char *why;
	const char *other; /* a key of the same section that may not be given beside it */
	enum zero_slot slot;
	bool of_group; /* the place is in each group, else in struct zero_settings */
	size_t offset;
	enum zero_auto automatic;
	bool nullable;       /* null counts as absent */
	bool lists;          /* may be a list with a number for each group */
	enum zero_need need; /* if it is missing, there is a remark */
	unsigned params; /* optimizers with one of these (zero/optimizers/row.h) have it; 0: all */
	unsigned schedules; /* bits 1 << type of those that have this key; 0: all */
};

extern const struct zero_key zero_keys[];
extern const char *const zero_orders[]; /* the values of reduction_order */
extern const int zero_nkeys;

/* The index of a key; -1: none. */
int zero_key_find(const char *path);
/* Whether the chosen optimizer, and schedule, have the key. */
bool zero_key_applies(const struct zero_key *key, const struct zero_settings *settings);
/* The i-th choice; NULL if there is none. */
const char *zero_range_choice(const struct zero_range *range, int i);
bool zero_range_has(const struct zero_range *range, double value);

/* What the file has of a key. */
struct zero_given *zero_given_of(const struct zero_reading *r, const char *path);
/* Why a key has no effect beside those that were taken before. NULL: it has one. */
const char *zero_key_idle(const struct zero_reading *r, const struct zero_key *key);

#endif
