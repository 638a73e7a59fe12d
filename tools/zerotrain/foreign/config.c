/* config.json of GPT-2 and of Llama: reading and writing. */
#include "tools/common/tool.h"
#include "tools/zerotrain/foreign/foreign.h"

#include <limits.h>
#include <string.h>

/* ---- Reading --------------------------------------------------------------------------------- */

#ifdef KO_HAVE_JANSSON
#include <jansson.h>

struct config {
	const char *path;
	const json_t *is;
};

static int refuse(const struct config *c, const char *key, const char *want)
{
	fprintf(stderr, "zerotrain: %s: \"%s\": %s\n", c->path, key, want);
	return EXIT_WRONG;
}

/* A key may be absent or null: then it has the value that transformers would take. */
static const json_t *find(const struct config *c, const char *key)
{
	const json_t *value = json_object_get(c->is, key);

	return value && !json_is_null(value) ? value : NULL;
}

static int take_number(const struct config *c, const char *key, int most, int *out)
{
	const json_t *value = find(c, key);
	json_int_t number = json_integer_value(value);

	char want[64];

	*out = (int)number;
	snprintf(want, sizeof(want), "must be a number from 1 to %d", most);
	return json_is_integer(value) && number >= 1 && number <= most ? EXIT_GOOD
								       : refuse(c, key, want);
}

static int take_number_if(const struct config *c, const char *key, int most, int without, int *out)
{
	*out = without;
	return find(c, key) ? take_number(c, key, most, out) : EXIT_GOOD;
}

/* Of an object that may be there. */
static int take_real(const struct config *c, const json_t *object, const char *key, double without,
		     double *out)
{
	const json_t *value = json_object_get(object, key);

	*out = without;
	if (!value || json_is_null(value))
		return EXIT_GOOD;
	*out = json_number_value(value);
	return *out > 0 && *out < MOST_REAL ? EXIT_GOOD : refuse(c, key, REAL_RANGE);
}

static bool has_text(const json_t *object, const char *key, const char *want)
{
	const json_t *value = json_object_get(object, key);
	const char *text = json_string_value(value);

	return !value || json_is_null(value) || (text && strcmp(text, want) == 0);
}

static int want_text(const struct config *c, const char *key, const char *want)
{
	char text[64];

	snprintf(text, sizeof(text), "must be \"%s\"", want);
	return has_text(c->is, key, want) ? EXIT_GOOD : refuse(c, key, text);
}

static int want_flag(const struct config *c, const char *key, bool want)
{
	const json_t *value = find(c, key);

	if (!value || (json_is_boolean(value) && json_is_true(value) == want))
		return EXIT_GOOD;
	return refuse(c, key, want ? "must be true" : "must be false");
}

static int read_gpt2(const struct config *c, struct sizes *s)
{
	int rc;

	s->kind = GPT2;
	if ((rc = take_number(c, "n_layer", 1000, &s->layers)) ||
	    (rc = take_number(c, "n_embd", 1 << 14, &s->dim)) ||
	    (rc = take_number(c, "n_head", 1 << 14, &s->heads)) ||
	    (rc = take_number(c, "n_positions", 1 << 20, &s->context)) ||
	    (rc = take_number(c, "vocab_size", 1 << 16, &s->values)) ||
	    (rc = take_number_if(c, "n_inner", 1 << 16, 4 * s->dim, &s->inner)) ||
	    (rc = take_real(c, c->is, "layer_norm_epsilon", 1e-5, &s->eps)))
		return rc;
	s->kv_heads = s->heads;
	if (s->dim % s->heads)
		return refuse(c, "n_embd", "must be a multiple of n_head");
	if ((rc = want_text(c, "activation_function", "gelu_new")) ||
	    (rc = want_flag(c, "scale_attn_weights", true)) ||
	    (rc = want_flag(c, "scale_attn_by_inverse_layer_idx", false)) ||
	    (rc = want_flag(c, "add_cross_attention", false)))
		return rc;
	return want_flag(c, "tie_word_embeddings", true);
}

/* Where turns are described: newer configs have an object of its own for them. */
static int read_turns(const struct config *c, struct sizes *s)
{
	const char *keys[] = { "rope_parameters", "rope_scaling" };
	int rc = take_real(c, c->is, "rope_theta", 10000, &s->theta);

	for (int i = 0; rc == EXIT_GOOD && i < 2; i++) {
		const json_t *turns = find(c, keys[i]);

		if (turns && (!json_is_object(turns) || json_object_get(turns, "factor") ||
			      !has_text(turns, "rope_type", "default") ||
			      !has_text(turns, "type", "default")))
			return refuse(c, keys[i], "must have the type \"default\", and no factor");
		rc = take_real(c, turns, "rope_theta", s->theta, &s->theta);
	}
	return rc;
}

static int read_llama(const struct config *c, struct sizes *s)
{
	const json_t *tied = find(c, "tie_word_embeddings");
	int rc, head;

	s->kind = LLAMA;
	if ((rc = take_number(c, "num_hidden_layers", 1000, &s->layers)) ||
	    (rc = take_number(c, "hidden_size", 1 << 14, &s->dim)) ||
	    (rc = take_number(c, "num_attention_heads", 1 << 14, &s->heads)) ||
	    (rc = take_number_if(c, "num_key_value_heads", 1 << 14, s->heads, &s->kv_heads)) ||
	    (rc = take_number(c, "intermediate_size", 1 << 16, &s->inner)) ||
	    (rc = take_number(c, "max_position_embeddings", 1 << 20, &s->context)) ||
	    (rc = take_number(c, "vocab_size", 1 << 16, &s->values)) ||
	    (rc = take_number_if(c, "head_dim", 1 << 14, s->dim / s->heads, &head)) ||
	    (rc = take_real(c, c->is, "rms_norm_eps", 1e-6, &s->eps)) || (rc = read_turns(c, s)))
		return rc;
	if (head * s->heads != s->dim)
		return refuse(c, "head_dim", "must be hidden_size / num_attention_heads");
	if (s->heads % s->kv_heads)
		return refuse(c, "num_key_value_heads", "must divide num_attention_heads");
	if (tied && !json_is_boolean(tied))
		return refuse(c, "tie_word_embeddings", "must be true or false");
	s->untied = !json_is_true(tied);
	if ((rc = want_text(c, "hidden_act", "silu")) ||
	    (rc = want_flag(c, "attention_bias", false)))
		return rc;
	return want_flag(c, "mlp_bias", false);
}

int foreign_read_sizes(const char *folder, struct sizes *out)
{
	json_error_t error;
	char path[4096];
	struct config c = { .path = path };
	const char *type;
	json_t *file;
	int rc;

	snprintf(path, sizeof(path), "%s/config.json", folder);
	c.is = file = json_load_file(path, 0, &error);
	type = json_string_value(json_object_get(file, "model_type"));
	if (!json_is_object(file)) {
		fprintf(stderr, "zerotrain: %s: %s: must be the config of a model\n", path,
			file ? "not an object" : error.text);
		rc = EXIT_WRONG;
	} else if (type && strcmp(type, "gpt2") == 0) {
		rc = read_gpt2(&c, out);
	} else if (type && strcmp(type, "llama") == 0) {
		rc = read_llama(&c, out);
	} else {
		rc = refuse(&c, "model_type", "must be \"gpt2\" or \"llama\"");
	}
	json_decref(file);
	return rc;
}
#else
int foreign_read_sizes(const char *folder, struct sizes *out)
{
	(void)out;
	fprintf(stderr,
		"zerotrain: --import %s: this build reads no JSON: it lacks the library jansson\n",
		folder);
	return EXIT_USAGE;
}
#endif

/* ---- Writing --------------------------------------------------------------------------------- */

static void write_gpt2(FILE *f, const struct sizes *s)
{
	fprintf(f,
		"  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
		"  \"activation_function\": \"gelu_new\",\n  \"layer_norm_epsilon\": %.17g,\n"
		"  \"n_layer\": %d,\n  \"n_embd\": %d,\n  \"n_head\": %d,\n  \"n_positions\": %d,\n"
		"  \"n_ctx\": %d,\n  \"n_inner\": %d,\n  \"vocab_size\": %d,\n",
		eps_of(s), s->layers, s->dim, s->heads, s->context, s->context, inner_of(s),
		s->values);
}

/* Both ways to say the base of turns. */
static void write_llama(FILE *f, const struct sizes *s)
{
	fprintf(f,
		"  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n"
		"  \"hidden_act\": \"silu\",\n  \"rms_norm_eps\": %.17g,\n"
		"  \"num_hidden_layers\": %d,\n  \"hidden_size\": %d,\n"
		"  \"num_attention_heads\": %d,\n  \"num_key_value_heads\": %d,\n"
		"  \"intermediate_size\": %d,\n  \"max_position_embeddings\": %d,\n"
		"  \"vocab_size\": %d,\n  \"rope_theta\": %.17g,\n"
		"  \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": %.17g},\n"
		"  \"attention_bias\": false,\n  \"mlp_bias\": false,\n",
		eps_of(s), s->layers, s->dim, s->heads, kv_heads_of(s), inner_of(s), s->context,
		s->values, theta_of(s), theta_of(s));
}

int foreign_write_sizes(const char *folder, const struct sizes *s)
{
	char path[4096];
	FILE *f;
	bool bad;

	snprintf(path, sizeof(path), "%s/config.json", folder);
	if (!(f = fopen(path, "we")))
		return -1;
	fprintf(f, "{\n");
	if (s->kind == LLAMA)
		write_llama(f, s);
	else
		write_gpt2(f, s);
	fprintf(f,
		"  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n"
		"  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"float32\"\n}\n",
		s->untied ? "false" : "true");
	bad = ferror(f);
	return fclose(f) || bad ? -1 : 0;
}
