/* Takes the value of one key (zero_take): what the file has, or what "auto" stands for. Checks it
 * and puts it into its place. */
#include "zero/config/values.h"

#include "zero/config/config.h"
#include "zero/config/keys.h"
#include "zero/config/source.h"
#include "zero/core/layout.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- In words -------------------------------------------------------------------------------- */

/* Writes a text between quotes, cut if it is long. A question mark replaces each byte that is not
 * plain ASCII, because any terminal may show the error. */
static void show_text(const char *text, char out[ZERO_SHOWN])
{
	size_t n = strlen(text), shown = n < 36 ? n : 32;

	snprintf(out, ZERO_SHOWN, "\"%.*s%s\"", (int)shown, text, shown < n ? "..." : "");
	for (char *p = out; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
}

const char *zero_show(const json_t *value, char out[ZERO_SHOWN])
{
	switch (json_typeof(value)) {
	case JSON_OBJECT: snprintf(out, ZERO_SHOWN, "an object"); break;
	case JSON_ARRAY: snprintf(out, ZERO_SHOWN, "a list of %zu", json_array_size(value)); break;
	case JSON_STRING: show_text(json_string_value(value), out); break;
	case JSON_INTEGER:
		snprintf(out, ZERO_SHOWN, "%lld", (long long)json_integer_value(value));
		break;
	case JSON_REAL: snprintf(out, ZERO_SHOWN, "%.15g", json_real_value(value)); break;
	case JSON_TRUE: snprintf(out, ZERO_SHOWN, "true"); break;
	case JSON_FALSE: snprintf(out, ZERO_SHOWN, "false"); break;
	case JSON_NULL: snprintf(out, ZERO_SHOWN, "null"); break;
	}
	return out;
}

const char *zero_want(const struct zero_range *range, char out[ZERO_NAMES])
{
	size_t len;

	if (range->want) {
		snprintf(out, ZERO_NAMES, "%s", range->want);
		return out;
	}
	len = (size_t)snprintf(out, ZERO_NAMES, "one of");
	for (int i = (int)range->low; zero_range_choice(range, i) && len < ZERO_NAMES; i++)
		len += (size_t)snprintf(out + len, ZERO_NAMES - len, "%s \"%s\"",
					i > range->low ? "," : "", zero_range_choice(range, i));
	return out;
}

/* The only value that is possible. */
static const char *show_preset(const struct zero_key *key, char out[ZERO_SHOWN])
{
	if (isnan(key->preset))
		snprintf(out, ZERO_SHOWN, "null");
	else if (key->range->kind == ZERO_FLAG)
		snprintf(out, ZERO_SHOWN, "%s", key->preset == 0 ? "false" : "true");
	else if (key->range->kind == ZERO_CHOICE)
		snprintf(out, ZERO_SHOWN, "\"%s\"",
			 zero_range_choice(key->range, (int)key->preset));
	else
		snprintf(out, ZERO_SHOWN, "%.15g", key->preset);
	return out;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

enum { NVALUES = 2 }; /* numbers in a value at most */

/* Rounds towards 0. From 2^53 on every double is an integer. */
static double cut_fraction(double x)
{
	return x > -0x1p53 && x < 0x1p53 ? (double)(long long)x : x;
}

static bool is_auto(const json_t *value)
{
	return json_is_string(value) && strcmp(json_string_value(value), "auto") == 0;
}

/* What "auto" stands for, and the field of the model description that it comes from. An unknown
 * value is NaN, an unknown batch size 0. */
static void resolve_auto(const struct kolo_zero_model *m, enum zero_auto automatic,
			 double x[NVALUES], const char **field)
{
	double hidden = m->hidden ? (double)m->hidden : NAN;

	*field = "hidden";
	switch (automatic) {
	case ZERO_AUTO_NONE: break;
	case ZERO_AUTO_LR: *x = m->lr, *field = "lr"; break;
	case ZERO_AUTO_BETAS: x[0] = m->beta1, x[1] = m->beta2, *field = "beta1 and beta2"; break;
	case ZERO_AUTO_EPS: *x = m->eps, *field = "eps"; break;
	case ZERO_AUTO_DECAY: *x = m->weight_decay, *field = "weight_decay"; break;
	case ZERO_AUTO_CLIP: *x = m->clip, *field = "clip"; break;
	case ZERO_AUTO_FP16: *x = m->type == KOLO_F16, *field = "type"; break;
	case ZERO_AUTO_BF16: *x = m->type == KOLO_BF16, *field = "type"; break;
	case ZERO_AUTO_MICRO: *x = (double)m->micro_batch, *field = "micro_batch"; break;
	case ZERO_AUTO_ACCUMULATION: *x = m->accumulation, *field = "accumulation"; break;
	case ZERO_AUTO_TRAIN: *x = (double)m->train_batch, *field = "train_batch"; break;
	case ZERO_AUTO_ZERO: *x = 0; break;
	case ZERO_AUTO_WARMUP: *x = (double)m->warmup_steps, *field = "warmup_steps"; break;
	case ZERO_AUTO_TOTAL:
		*x = m->total_steps ? (double)m->total_steps : NAN, *field = "total_steps";
		break;
	case ZERO_AUTO_BUCKET:
		*x = hidden * hidden < ZERO_LEAST_BUCKET ? ZERO_LEAST_BUCKET : hidden * hidden;
		break;
	case ZERO_AUTO_PREFETCH: *x = cut_fraction(0.9 * hidden * hidden); break;
	case ZERO_AUTO_PERSISTENCE: *x = 10 * hidden; break;
	case ZERO_AUTO_TENSOR: *x = m->tensor_size ? m->tensor_size : 1; break;
	case ZERO_AUTO_PIPE: *x = m->pipe_size ? m->pipe_size : 1; break;
	}
}

/* Whether it is a batch size. These may be unknown, because rules.c derives them from each
 * other. */
static bool may_be_unknown(enum zero_auto automatic)
{
	return automatic == ZERO_AUTO_MICRO || automatic == ZERO_AUTO_ACCUMULATION ||
	       automatic == ZERO_AUTO_TRAIN;
}

static int take_auto(const struct zero_reading *r, int k, double x[NVALUES])
{
	const struct zero_key *key = &zero_keys[k];
	const char *field, *path = r->given[k].path;
	char want[ZERO_NAMES];

	zero_want(key->range, want);
	if (key->automatic == ZERO_AUTO_NONE)
		return zero_refuse_value(
			r, path, "is \"auto\", which stands for nothing here: want %s", want);
	resolve_auto(r->model, key->automatic, x, &field);
	if (isnan(*x))
		return zero_refuse_value(
			r, path,
			"is \"auto\", and %s of the model description is unknown: set it, or want %s",
			field, want);
	if (may_be_unknown(key->automatic) && *x == 0)
		return 0;
	for (int i = 0; i < (key->range->kind == ZERO_BETAS ? 2 : 1); i++)
		if (!zero_range_has(key->range, x[i]))
			return zero_refuse_value(
				r, path,
				"is \"auto\", and %s of the model description gives %.15g: want %s",
				field, x[i], want);
	return 0;
}

/* Reads a JSON number. Returns whether it is in the range. */
static bool read_number(const struct zero_range *range, const json_t *value, double *x)
{
	if (!json_is_number(value))
		return false;
	*x = json_number_value(value);
	return zero_range_has(range, *x) && (range->kind != ZERO_INTEGER || cut_fraction(*x) == *x);
}

static bool read_choice(const struct zero_range *range, const json_t *value, double *x)
{
	const char *name;

	for (int i = (int)range->low; json_is_string(value) && (name = zero_range_choice(range, i));
	     i++) {
		const char *text = json_string_value(value);

		*x = i;
		if ((range->any_case ? strcasecmp : strcmp)(text, name) == 0)
			return true;
	}
	return false;
}

/* Reads a value as numbers. Returns whether it fits the range. Texts, lists and sections have no
 * numbers. */
static bool read_value(const struct zero_range *range, const json_t *value, double x[NVALUES])
{
	switch (range->kind) {
	case ZERO_FLAG: x[0] = json_is_true(value); return json_is_boolean(value);
	case ZERO_INTEGER:
	case ZERO_NUMBER: return read_number(range, value, x);
	case ZERO_CHOICE: return read_choice(range, value, x);
	case ZERO_BETAS:
		return json_array_size(value) == 2 &&
		       read_number(range, json_array_get(value, 0), &x[0]) &&
		       read_number(range, json_array_get(value, 1), &x[1]);
	case ZERO_TEXT: return json_is_string(value);
	case ZERO_LIST: return json_is_array(value);
	case ZERO_SECTION: return json_is_object(value);
	}
	return false;
}

/* ---- Places ---------------------------------------------------------------------------------- */

static char *place_of(const struct zero_settings *s, const struct zero_key *key, int group)
{
	return (key->of_group ? (char *)&s->shown.groups[group] : (char *)s) + key->offset;
}

/* Cuts integers at 2^53, up to which doubles are exact. No program reaches such a limit. */
static double cut_integer(double x)
{
	return x < 0x1p53 ? x : 0x1p53;
}

static void put_number(struct zero_settings *s, const struct zero_key *key, int group,
		       const double x[NVALUES])
{
	void *place = place_of(s, key, group);

	switch (key->slot) {
	case ZERO_IN_INT: *(int *)place = (int)*x; break;
	case ZERO_IN_LONG: *(long *)place = (long)cut_integer(*x); break;
	case ZERO_IN_SIZE: *(size_t *)place = (size_t)cut_integer(*x); break;
	case ZERO_IN_DOUBLE: *(double *)place = *x; break;
	default: break;
	}
	if (key->range->kind == ZERO_BETAS)
		s->shown.groups[group].beta2 = x[1];
}

double zero_place_get(const struct zero_settings *s, const struct zero_key *key, int group)
{
	const void *place = place_of(s, key, group);

	switch (key->slot) {
	case ZERO_IN_INT: return *(const int *)place;
	case ZERO_IN_LONG: return (double)*(const long *)place;
	case ZERO_IN_SIZE: return (double)*(const size_t *)place;
	case ZERO_IN_DOUBLE: return *(const double *)place;
	default: return NAN;
	}
}

const char *zero_place_text(const struct zero_settings *s, const struct zero_key *key)
{
	return *(const char *const *)place_of(s, key, 0);
}

static int put_text(const struct zero_reading *r, const struct zero_key *key, const char *text)
{
	char **place = (char **)place_of(r->out, key, 0), *copy = malloc(strlen(text) + 1);

	if (!copy)
		return kolo_error_set(KOLO_ENOMEM, "%.200s: %s: out of memory", r->name, key->path);
	free(*place);
	*place = strcpy(copy, text);
	return 0;
}

/* ---- A key ----------------------------------------------------------------------------------- */

/* Takes a list with one number for each group. */
static int take_list(const struct zero_reading *r, int k)
{
	const struct zero_key *key = &zero_keys[k];
	const struct zero_given *g = &r->given[k];
	int ngroups = r->model->ngroups;
	double x[NVALUES];

	if (json_array_size(g->value) != (size_t)ngroups)
		return zero_refuse_value(
			r, g->path,
			"is a list of %zu: want %s, or a list of one for each of %d groups",
			json_array_size(g->value), key->range->want, ngroups);
	for (int i = 0; i < ngroups; i++) {
		const json_t *value = json_array_get(g->value, (size_t)i);
		char shown[ZERO_SHOWN];

		if (!read_number(key->range, value, x))
			return zero_refuse_value(r, g->path, "has %s for group %d: want %s",
						 zero_show(value, shown), i, key->range->want);
		put_number(r->out, key, i, x);
	}
	return 0;
}

/* Takes a section that may only be switched off. */
static int take_off(const struct zero_reading *r, int k)
{
	const struct zero_given *g = &r->given[k];

	if (json_is_null(g->value) || json_is_false(json_object_get(g->value, "enabled")) ||
	    (json_is_object(g->value) && json_object_size(g->value) == 0))
		return 0;
	return zero_refuse_key(r, g->path, "is not possible but with \"enabled\": false: %s",
			       zero_keys[k].why);
}

/* Does what the role says, with a value that is in the range. */
static int apply_role(const struct zero_reading *r, int k, const double x[NVALUES])
{
	const struct zero_key *key = &zero_keys[k];
	const struct zero_given *g = &r->given[k];
	char shown[ZERO_SHOWN], only[ZERO_SHOWN];

	if (key->role == ZERO_MOOT)
		return *x == key->preset ? 0 : zero_note(r, g->path, key->why);
	if (key->role == ZERO_ONLY && *x != key->preset)
		return zero_refuse_value(r, g->path, "is %s: only %s is possible: %s",
					 zero_show(g->value, shown), show_preset(key, only),
					 key->why);
	if (key->slot == ZERO_IN_TEXT)
		return put_text(r, key, json_string_value(g->value));
	for (int i = 0; i < (key->of_group ? r->model->ngroups : 1); i++)
		put_number(r->out, key, i, x);
	return key->role == ZERO_OLD ? zero_note(r, g->path, key->why) : 0;
}

void zero_list_names(const struct zero_reading *r, const char *section, char out[ZERO_NAMES])
{
	size_t used = 0, len = strlen(section);

	*out = 0;
	for (int k = 0; k < zero_nkeys; k++) {
		const struct zero_key *key = &zero_keys[k];

		if (strncmp(key->path, section, len) == 0 && key->role == ZERO_DONE &&
		    zero_key_applies(key, r->out) && used < ZERO_NAMES)
			used += (size_t)snprintf(out + used, ZERO_NAMES - used, "%s%s",
						 used ? ", " : "", key->path + len);
	}
}

static int refuse_foreign(const struct zero_reading *r, int k)
{
	const struct zero_key *key = &zero_keys[k];
	char names[ZERO_NAMES];

	zero_list_names(r, key->params ? "optimizer.params." : "scheduler.params.", names);
	return zero_refuse_key(
		r, r->given[k].path, "is no parameter of %s: want some of %s",
		key->params
			? kolo_zero_optimizer_name((enum kolo_zero_optimizer)r->out->optimizer)
			: kolo_zero_schedule_name((enum kolo_zero_schedule_type)r->out->schedule),
		names);
}

int zero_take(const struct zero_reading *r, int k)
{
	const struct zero_key *key = &zero_keys[k];
	const struct zero_given *g = &r->given[k];
	char shown[ZERO_SHOWN], want[ZERO_NAMES];
	double x[NVALUES] = { NAN, NAN };
	const char *idle;
	int rc = 0;

	if (!g->value)
		return 0;
	if (!zero_key_applies(key, r->out))
		return refuse_foreign(r, k);
	if (key->role == ZERO_REFUSED)
		return zero_refuse_key(r, g->path, "is not possible: %s", key->why);
	if (key->role == ZERO_OFF)
		return take_off(r, k);
	if (json_is_null(g->value) && key->nullable)
		return 0;
	if (key->lists && json_is_array(g->value))
		return take_list(r, k);
	if (is_auto(g->value) && key->range->kind != ZERO_TEXT)
		rc = take_auto(r, k, x);
	else if (!read_value(key->range, g->value, x))
		return zero_refuse_value(r, g->path, "is %s: want %s", zero_show(g->value, shown),
					 zero_want(key->range, want));
	if (rc == 0 && key->range->kind == ZERO_SECTION && key->role == ZERO_DONE)
		return 0;
	if (rc == 0)
		rc = apply_role(r, k, x);
	if (rc == 0 && (idle = zero_key_idle(r, key)))
		rc = zero_note(r, g->path, idle);
	return rc;
}
