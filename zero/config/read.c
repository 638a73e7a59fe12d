/* Reads a config: kolo_zero_settings_read and kolo_zero_settings_parse.
 *
 * take_all has the order of the steps: the two types, the presets, all keys, all values, the rules
 * between keys, and the resolved text. */
#include "zero/config/config.h"
#include "zero/config/keys.h"
#include "zero/config/rules.h"
#include "zero/config/source.h"
#include "zero/config/text.h"
#include "zero/config/values.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Unknown keys ---------------------------------------------------------------------------- */

enum { LONGEST = 48 }; /* bytes of a name that is compared with others */

/* Counts the insertions, deletions and replacements that make one name of the other (Levenshtein).
 * Returns LONGEST if a name is too long. */
static size_t count_edits(const char *a, const char *b)
{
	size_t row[LONGEST + 1], na = strlen(a), nb = strlen(b);

	if (na > LONGEST || nb > LONGEST)
		return LONGEST;
	for (size_t j = 0; j <= nb; j++)
		row[j] = j;
	for (size_t i = 1; i <= na; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			size_t replaced = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			row[j] = zero_min(replaced, 1 + zero_min(row[j], row[j - 1]));
		}
	}
	return row[nb];
}

static const char *name_of(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot ? dot + 1 : path;
}

/* The key that the user may have meant: a key of the same section with a few other letters, or a
 * key of this name in another section. NULL: none. */
static const char *find_nearest(const char *section, const char *name)
{
	size_t len = strlen(section), least = zero_min(strlen(name) / 3 + 1, LONGEST - 1);
	const char *best = NULL, *elsewhere = NULL;

	for (int k = 0; k < zero_nkeys; k++) {
		const char *path = zero_keys[k].path, *its = name_of(path);
		bool same_section = (size_t)(its - path) == len && strncmp(path, section, len) == 0;
		size_t edits = count_edits(name, its);

		if (edits == 0 && !elsewhere)
			elsewhere = path;
		if (same_section && edits <= least) {
			best = path;
			least = edits - 1;
		}
	}
	return best ? best : elsewhere;
}

/* `section` ends with a dot, or is empty. */
static int refuse_unknown(const struct zero_reading *r, const char *path, const char *section,
			  const char *name)
{
	const char *nearest = find_nearest(section, name);
	char names[ZERO_NAMES];

	if (nearest)
		return zero_refuse_key(r, path, "is unknown: did you mean %s?", nearest);
	if (!*section)
		return zero_refuse_key(r, path, "is unknown, and resembles no key of DeepSpeed's");
	zero_list_names(r, section, names);
	return zero_refuse_key(r, path, "is unknown: want some of %s", names);
}

/* ---- The tree -------------------------------------------------------------------------------- */

/* Appends a name to a path. Cuts a path that is too long, and replaces control characters: known
 * paths have none. */
static void join_path(char out[ZERO_PATH], const char *section, const char *name)
{
	size_t len = zero_min(strlen(section), ZERO_PATH - 1),
	       rest = zero_min(strlen(name), ZERO_PATH - 1 - len);

	memmove(out, section, len);
	memcpy(out + len, name, rest);
	out[len + rest] = 0;
	for (char *p = out + len; *p; p++)
		if ((unsigned char)*p < ' ')
			*p = '?';
}

/* An old form of the section zero_optimization is a flag: true is stage 1. */
static int take_old_zero(struct zero_reading *r, struct zero_given *g)
{
	r->out->shown.config.stage = json_is_true(g->value);
	g->value = NULL;
	return zero_note(r, g->path,
			 r->out->shown.config.stage ? "an old form: \"stage\": 1"
						    : "an old form: \"stage\": 0");
}

/* Finds the row of a path in the table. *out is -1 if there is none. */
static int find_row(struct zero_reading *r, const json_t *object, const char *spelled,
		    const char *known, int *out)
{
	const char *other;
	int rc = 0, k = zero_key_find(known);

	*out = k;
	if (k < 0)
		return 0;
	other = zero_keys[k].other;
	if (other && json_object_get(object, name_of(other)))
		return zero_refuse_key(r, spelled, "is given beside %s: keep the latter alone",
				       name_of(other));
	if (zero_keys[k].role == ZERO_RENAMED) {
		char text[ZERO_NAMES];

		snprintf(text, sizeof(text), "old name of %s", other);
		rc = zero_note(r, spelled, text);
		*out = zero_key_find(other);
	}
	return rc;
}

/* The path of a section, as the file spells it and as the table has it. It is empty, or ends with a
 * dot. */
struct sections {
	char spelled[ZERO_PATH], known[ZERO_PATH];
};

static int walk(struct zero_reading *r, json_t *object, const struct sections *in);

/* Notes what the file has for a key and for the keys below it. */
static int walk_key(struct zero_reading *r, json_t *object, const struct sections *in,
		    const char *name, json_t *value)
{
	struct sections at;
	struct zero_given *g;
	int rc = 0, k = -1;

	join_path(at.spelled, in->spelled, name);
	join_path(at.known, in->known, name);
	if (!strchr(name, '.'))
		rc = find_row(r, object, at.spelled, at.known, &k);
	if (rc == 0 && k < 0)
		rc = refuse_unknown(r, at.spelled, in->known, name);
	if (rc < 0)
		return rc;
	g = &r->given[k];
	g->value = value;
	strcpy(g->path, at.spelled);
	if (strcmp(at.known, "zero_optimization") == 0 && json_is_boolean(value))
		return take_old_zero(r, g);
	if (zero_keys[k].range->kind != ZERO_SECTION || zero_keys[k].role != ZERO_DONE)
		return 0;
	join_path(at.spelled, g->path, ".");
	join_path(at.known, zero_keys[k].path, ".");
	return walk(r, value, &at);
}

/* Notes all keys of an object. Other values have none. */
static int walk(struct zero_reading *r, json_t *object, const struct sections *in)
{
	int rc = 0;

	for (void *at = json_object_iter(object); rc == 0 && at;
	     at = json_object_iter_next(object, at))
		rc = walk_key(r, object, in, json_object_iter_key(at), json_object_iter_value(at));
	return rc;
}

/* Takes the type of the optimizer or the schedule, which decides what other keys there are. */
static int take_type(struct zero_reading *r, const char *section, const char *path)
{
	json_t *object = json_object_get(r->root, section), *type = json_object_get(object, "type");
	struct zero_given *g = zero_given_of(r, path);
	char want[ZERO_NAMES];
	int k = zero_key_find(path);

	if (json_is_object(object) && !type)
		return zero_refuse_value(r, section, "has no \"type\": want %s",
					 zero_want(zero_keys[k].range, want));
	g->value = type;
	strcpy(g->path, path);
	return zero_take(r, k);
}

static int take_all(struct zero_reading *r)
{
	int rc = take_type(r, "optimizer", "optimizer.type");

	if (rc == 0)
		rc = take_type(r, "scheduler", "scheduler.type");
	if (rc < 0)
		return rc;
	zero_rules_begin(r);
	rc = walk(r, r->root, &(struct sections){ "", "" });
	for (int k = 0; rc == 0 && k < zero_nkeys; k++)
		rc = zero_take(r, k);
	if (rc == 0)
		rc = zero_rules_end(r);
	return rc == 0 ? zero_text_make(r) : rc;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static int check_model(const struct kolo_zero_model *m)
{
	if (!m)
		return kolo_error_set(KOLO_EINVAL, "reading a config needs a model description");
	if (m->nranks < 1 || m->ngroups < 1 || m->accumulation < 0 || m->warmup_steps < 0 ||
	    m->total_steps < 0)
		return kolo_error_set(
			KOLO_EINVAL,
			"model.nranks %d, ngroups %d, accumulation %d, warmup_steps %ld, total_steps %ld: want at least 1, 1, 0, 0, 0",
			m->nranks, m->ngroups, m->accumulation, m->warmup_steps, m->total_steps);
	if (m->type != KOLO_F32 && m->type != KOLO_F16 && m->type != KOLO_BF16)
		return kolo_error_set(KOLO_EINVAL,
				      "model.type is %d: want KOLO_F32, KOLO_F16 or KOLO_BF16",
				      (int)m->type);
	if (m->tensor_size < 0 || m->pipe_size < 0)
		return kolo_error_set(KOLO_EINVAL,
				      "model.tensor_size %d, pipe_size %d: want at least 0",
				      m->tensor_size, m->pipe_size);
	if ((m->device | 1) != 1)
		return kolo_error_set(KOLO_EINVAL, "model.device is %d: want 0 or 1", m->device);
	for (size_t i = 0; i < sizeof(m->reserved) / sizeof(m->reserved[0]); i++)
		if (m->reserved[i])
			return kolo_error_set(
				KOLO_EINVAL,
				"model.reserved is not zero: use kolo_zero_model_init");
	return 0;
}

/* Makes the tree. jansson reports the line where it stopped. If it reports none, it had no memory;
 * its error code may name something else then. */
static int load_tree(struct zero_reading *r)
{
	json_error_t error = { .line = -1 };

	r->root = json_loads(r->text, JSON_REJECT_DUPLICATES, &error);
	if (json_is_object(r->root))
		return 0;
	if (r->root)
		return kolo_error_set(KOLO_EINVAL,
				      "%.200s:1:1: a list: want an object, keys in { }", r->name);
	if (error.line < 0 || json_error_code(&error) == json_error_out_of_memory)
		return kolo_error_set(KOLO_ENOMEM, "%.200s: out of memory", r->name);
	if (json_error_code(&error) == json_error_duplicate_key)
		return zero_refuse_twice(r, (size_t)error.position);
	return kolo_error_set(KOLO_EINVAL, "%.200s:%d:%d: %s", r->name, error.line, error.column,
			      error.text);
}

/* Reads a text and frees it. */
static int read_text(const char *name, char *text, const struct kolo_zero_model *model,
		     struct kolo_zero_settings **out)
{
	struct zero_reading r = { .name = name, .text = text, .model = model };
	int rc = zero_source_blank(name, text);

	if (rc == 0) {
		r.out = calloc(1, sizeof(*r.out));
		r.given = calloc((size_t)zero_nkeys, sizeof(*r.given));
		if (r.out)
			r.out->shown.groups =
				calloc((size_t)model->ngroups, sizeof(*r.out->shown.groups));
		if (!r.out || !r.given || !r.out->shown.groups)
			rc = kolo_error_set(KOLO_ENOMEM, "%.200s: settings: out of memory", name);
	}
	if (rc == 0)
		rc = load_tree(&r);
	if (rc == 0)
		rc = take_all(&r);
	json_decref(r.root);
	free(r.given);
	free(text);
	if (rc == 0)
		*out = &r.out->shown;
	else if (r.out)
		kolo_zero_settings_destroy(&r.out->shown);
	return rc;
}

int kolo_zero_settings_read(const char *path, const struct kolo_zero_model *model,
			    struct kolo_zero_settings **out)
{
	char *text;
	int rc;

	if (!out)
		return kolo_error_set(KOLO_EINVAL, "kolo_zero_settings_read: out is NULL");
	*out = NULL;
	if (!path)
		return kolo_error_set(KOLO_EINVAL, "kolo_zero_settings_read: path is NULL");
	if ((rc = check_model(model)) < 0 || (rc = zero_source_read(path, &text)) < 0)
		return rc;
	return read_text(path, text, model, out);
}

int kolo_zero_settings_parse(const char *text, const struct kolo_zero_model *model,
			     struct kolo_zero_settings **out)
{
	char *copy;
	int rc;

	if (!out)
		return kolo_error_set(KOLO_EINVAL, "kolo_zero_settings_parse: out is NULL");
	*out = NULL;
	if (!text)
		return kolo_error_set(KOLO_EINVAL, "kolo_zero_settings_parse: text is NULL");
	if ((rc = check_model(model)) < 0)
		return rc;
	copy = malloc(strlen(text) + 1);
	if (!copy)
		return kolo_error_set(KOLO_ENOMEM, "config: out of memory");
	return read_text("config", strcpy(copy, text), model, out);
}
