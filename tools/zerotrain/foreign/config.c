/* GPT-2's config.json (gpt2_read_sizes). */
#include "tools/common/tool.h"
#include "tools/zerotrain/foreign/gpt2.h"

#include <limits.h>
#include <string.h>

#ifdef KO_HAVE_JANSSON
#include <jansson.h>

static int refuse(const char *path, const char *key, const char *want)
{
	fprintf(stderr, "zerotrain: %s: \"%s\": %s\n", path, key, want);
	return EXIT_WRONG;
}

static int take_number(const char *path, const json_t *config, const char *key, int most, int *out)
{
	const json_t *value = json_object_get(config, key);
	json_int_t number = json_integer_value(value);

	*out = (int)number;
	return json_is_integer(value) && number >= 1 && number <= most
		       ? EXIT_GOOD
		       : refuse(path, key, "must be a number that zerotrain's options allow");
}

/* A key may be absent or null: then it has the value that this GPT has. */
static bool is_given(const json_t *config, const char *key)
{
	const json_t *value = json_object_get(config, key);

	return value && !json_is_null(value);
}

static bool has_text(const json_t *config, const char *key, const char *want)
{
	const char *text = json_string_value(json_object_get(config, key));

	return !is_given(config, key) || (text && strcmp(text, want) == 0);
}

static bool has_flag(const json_t *config, const char *key, bool want)
{
	return !is_given(config, key) || json_is_true(json_object_get(config, key)) == want;
}

/* What would make another model of it. */
static int check_kind(const char *path, const json_t *c, int dim)
{
	double eps = json_number_value(json_object_get(c, "layer_norm_epsilon"));

	if (!is_given(c, "model_type") || !has_text(c, "model_type", "gpt2"))
		return refuse(path, "model_type", "must be \"gpt2\"");
	if (!has_text(c, "activation_function", "gelu_new"))
		return refuse(path, "activation_function", "must be \"gelu_new\"");
	if (is_given(c, "layer_norm_epsilon") && !(eps > 0.99999e-5 && eps < 1.00001e-5))
		return refuse(path, "layer_norm_epsilon", "must be 1e-05");
	if (is_given(c, "n_inner") &&
	    json_integer_value(json_object_get(c, "n_inner")) != 4 * (json_int_t)dim)
		return refuse(path, "n_inner", "must be 4 times n_embd");
	if (!has_flag(c, "scale_attn_weights", true))
		return refuse(path, "scale_attn_weights", "must be true");
	if (!has_flag(c, "scale_attn_by_inverse_layer_idx", false))
		return refuse(path, "scale_attn_by_inverse_layer_idx", "must be false");
	if (!has_flag(c, "add_cross_attention", false))
		return refuse(path, "add_cross_attention", "must be false");
	if (!has_flag(c, "tie_word_embeddings", true))
		return refuse(path, "tie_word_embeddings", "must be true");
	return EXIT_GOOD;
}

int gpt2_read_sizes(const char *folder, struct sizes *out)
{
	json_error_t error;
	char path[4096];
	json_t *c;
	int rc;

	snprintf(path, sizeof(path), "%s/config.json", folder);
	c = json_load_file(path, 0, &error);
	if (!json_is_object(c)) {
		fprintf(stderr, "zerotrain: %s: %s: must be the config of a GPT-2\n", path,
			c ? "not an object" : error.text);
		json_decref(c);
		return EXIT_WRONG;
	}
	(void)((rc = take_number(path, c, "n_layer", 1000, &out->layers)) ||
	       (rc = take_number(path, c, "n_embd", 1 << 14, &out->dim)) ||
	       (rc = take_number(path, c, "n_head", 1 << 14, &out->heads)) ||
	       (rc = take_number(path, c, "n_positions", 1 << 16, &out->context)) ||
	       (rc = take_number(path, c, "vocab_size", 1 << 16, &out->values)) ||
	       (rc = check_kind(path, c, out->dim)));
	json_decref(c);
	return rc;
}
#else
int gpt2_read_sizes(const char *folder, struct sizes *out)
{
	(void)out;
	fprintf(stderr,
		"zerotrain: --import %s: this build reads no JSON: it lacks the library jansson\n",
		folder);
	return EXIT_USAGE;
}
#endif
