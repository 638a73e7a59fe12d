/* Writes the resolved config as text (zero_text_make). Keys have the table's order. A key that has
 * an effect is written with its resolved value, any other key as it was given. */
#include "zero/config/text.h"

#include "zero/config/config.h"
#include "zero/config/keys.h"
#include "zero/config/values.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- Values ---------------------------------------------------------------------------------- */

static json_t *make_value(const struct zero_range *range, double x)
{
	switch (range->kind) {
	case ZERO_FLAG: return json_boolean(x != 0);
	case ZERO_INTEGER: return json_integer((json_int_t)x);
	case ZERO_CHOICE: return json_string(zero_range_choice(range, (int)x));
	default: return json_real(x);
	}
}

/* The values of all groups, for a key in which groups differ. */
static json_t *make_list(const struct zero_reading *r, const struct zero_key *key)
{
	json_t *list = json_array();

	for (int i = 0; list && i < r->model->ngroups; i++) {
		if (json_array_append_new(
			    list, make_value(key->range, zero_place_get(r->out, key, i))) < 0) {
			json_decref(list);
			list = NULL;
		}
	}
	return list;
}

static bool groups_differ(const struct zero_reading *r, const struct zero_key *key)
{
	for (int i = 1; key->lists && i < r->model->ngroups; i++)
		if (zero_place_get(r->out, key, i) != zero_place_get(r->out, key, 0))
			return true;
	return false;
}

static json_t *make_done(const struct zero_reading *r, const struct zero_key *key)
{
	const struct kolo_zero_group *g = r->out->shown.groups;

	if (key->range->kind == ZERO_BETAS)
		return json_pack("[f, f]", g->beta1, g->beta2);
	if (key->slot == ZERO_IN_TEXT)
		return json_string(zero_place_text(r->out, key));
	if (groups_differ(r, key))
		return make_list(r, key);
	return make_value(key->range, zero_place_get(r->out, key, 0));
}

/* ---- Which keys ------------------------------------------------------------------------------ */

/* Whether a key that has an effect is written. If nothing is set, its place has a value outside of
 * the key's range. */
static bool shows_done(const struct zero_reading *r, int k)
{
	const struct zero_key *key = &zero_keys[k];

	if (key->range->kind == ZERO_SECTION || !zero_key_applies(key, r->out))
		return false;
	if (!r->given[k].value && zero_key_idle(r, key))
		return false;
	if (key->slot == ZERO_IN_TEXT)
		return zero_place_text(r->out, key) != NULL;
	return zero_range_has(key->range, zero_place_get(r->out, key, 0));
}

/* Puts a value into its section. Makes the section if it is missing. Takes over `value`; NULL:
 * there was no memory for it. */
static int put_value(json_t *root, const char *path, json_t *value)
{
	const char *dot;
	int rc = value ? 0 : -1;

	for (; rc == 0 && (dot = strchr(path, '.')); path = dot + 1) {
		size_t len = (size_t)(dot - path);
		json_t *section = json_object_getn(root, path, len);

		if (!section)
			rc = json_object_setn_new(root, path, len, section = json_object());
		root = section;
	}
	if (rc == 0)
		return json_object_set_new(root, path, value);
	json_decref(value);
	return rc;
}

static json_t *make_tree(const struct zero_reading *r)
{
	json_t *root = json_object();
	int rc = root ? 0 : -1;

	for (int k = 0; rc == 0 && k < zero_nkeys; k++) {
		const struct zero_key *key = &zero_keys[k];

		if (key->role != ZERO_DONE && key->role != ZERO_OLD && r->given[k].value)
			rc = put_value(root, key->path, json_incref(r->given[k].value));
		else if (key->role == ZERO_DONE && shows_done(r, k))
			rc = put_value(root, key->path, make_done(r, key));
	}
	if (rc < 0)
		json_decref(root);
	return rc < 0 ? NULL : root;
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* Prints numbers with the fewest digits from which all of them are read back unchanged. */
static char *print_tree(const json_t *root)
{
	enum { LEAST = 6, MOST = 17 };

	for (size_t digits = LEAST; digits <= MOST; digits++) {
		size_t flags = JSON_INDENT(4) | JSON_REAL_PRECISION(digits),
		       len = json_dumpb(root, NULL, 0, flags);
		char *text = calloc(1, len + sizeof("\n"));
		json_t *back;
		int same; /* 1: read back unchanged; 0: changed; -1: no memory */

		if (!text)
			return NULL;
		json_dumpb(root, text, len, flags);
		strcpy(text + len, "\n");
		back = json_loads(text, 0, NULL);
		same = back ? json_equal(root, back) : -1;
		json_decref(back);
		if (same > 0)
			return text;
		free(text);
		if (same < 0)
			return NULL;
	}
	return NULL;
}

int zero_text_make(const struct zero_reading *r)
{
	json_t *root = make_tree(r);

	r->out->text = root ? print_tree(root) : NULL;
	json_decref(root);
	return r->out->text ? 0
			    : kolo_error_set(KOLO_ENOMEM,
					     "%.200s: the resolved text: out of memory", r->name);
}
