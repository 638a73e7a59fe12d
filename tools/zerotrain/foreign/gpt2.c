/* Names and order of GPT-2's tensors, and its config. */
#include "tools/zerotrain/foreign/gpt2.h"
#include "tools/common/tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Of a block, by the model's numbers. Linear layers are [in, out] there. */
static const struct {
	const char *name;
	bool turned;
} of_block[PER_BLOCK] = {
	{ "ln_1.weight", false },       { "ln_1.bias", false },
	{ "attn.c_attn.weight", true }, { "attn.c_attn.bias", false },
	{ "attn.c_proj.weight", true }, { "attn.c_proj.bias", false },
	{ "ln_2.weight", false },       { "ln_2.bias", false },
	{ "mlp.c_fc.weight", true },    { "mlp.c_fc.bias", false },
	{ "mlp.c_proj.weight", true },  { "mlp.c_proj.bias", false },
};

static bool in_block(const struct sizes *s, int tensor)
{
	return tensor >= FIRST_BLOCK && (tensor - FIRST_BLOCK) / PER_BLOCK < s->layers;
}

static bool is_turned(const struct sizes *s, int tensor)
{
	return in_block(s, tensor) && of_block[(tensor - FIRST_BLOCK) % PER_BLOCK].turned;
}

/* The whole tensor as GPT-2 has it. */
static struct described describe(const struct sizes *s, int tensor)
{
	struct sizes whole = *s;
	struct tensor_shape shape;
	struct described d = { .ndims = 1 };
	int block = (tensor - FIRST_BLOCK) / PER_BLOCK, part = (tensor - FIRST_BLOCK) % PER_BLOCK;

	whole.tensor_size = 1;
	shape = tensor_shape_of(&whole, tensor);
	if (tensor < FIRST_BLOCK)
		snprintf(d.name, sizeof(d.name), "%s.weight", tensor == BYTES ? "wte" : "wpe");
	else if (in_block(s, tensor))
		snprintf(d.name, sizeof(d.name), "h.%d.%s", block, of_block[part].name);
	else
		snprintf(d.name, sizeof(d.name), "ln_f.%s", part == 0 ? "weight" : "bias");
	d.shape[0] = shape.rows;
	if (shape.columns) {
		d.ndims = 2;
		d.shape[0] = is_turned(s, tensor) ? shape.columns : shape.rows;
		d.shape[1] = is_turned(s, tensor) ? shape.rows : shape.columns;
	}
	return d;
}

/* Where element i of the model's whole tensor is there. */
static size_t place_of(const struct described *d, bool turned, size_t i)
{
	size_t in = d->shape[0], out = d->shape[1];

	return turned ? i % in * out + i / in : i;
}

/* Older files leave out the first part of names. */
static bool find(const struct gpt2 *g, const struct described *d, struct stored *out)
{
	char name[96];

	snprintf(name, sizeof(name), "transformer.%s", d->name);
	return safetensors_find(g->file, name, out) || safetensors_find(g->file, d->name, out);
}

static int check_tensors(const struct gpt2 *g)
{
	for (int t = 0; t < tensor_count(&g->sizes); t++) {
		struct described d = describe(&g->sizes, t);
		struct stored s;

		if (!find(g, &d, &s)) {
			fprintf(stderr,
				"zerotrain: %s/model.safetensors: has no tensor '%s' of type F32, F16 or BF16\n",
				g->folder, d.name);
			return EXIT_WRONG;
		}
		if (s.ndims == d.ndims && s.shape[0] == d.shape[0] &&
		    (d.ndims == 1 || s.shape[1] == d.shape[1]))
			continue;
		fprintf(stderr,
			"zerotrain: %s/model.safetensors: tensor '%s' is [%zu%s%zu], and config.json makes it [%zu%s%zu]\n",
			g->folder, d.name, s.shape[0], s.ndims > 1 ? ", " : "] of ",
			s.ndims > 1 ? s.shape[1] : 1, d.shape[0], d.ndims > 1 ? ", " : "] of ",
			d.ndims > 1 ? d.shape[1] : 1);
		return EXIT_WRONG;
	}
	return EXIT_GOOD;
}

int gpt2_open(const char *folder, const struct sizes *sizes, struct gpt2 *g)
{
	char path[4096];
	int rc;

	*g = (struct gpt2){ .folder = folder, .sizes = *sizes };
	snprintf(path, sizeof(path), "%s/model.safetensors", folder);
	rc = safetensors_open(path, &g->file);
	return rc ? rc : check_tensors(g);
}

void gpt2_close(struct gpt2 *g)
{
	safetensors_close(g->file);
	g->file = NULL;
}

void gpt2_values(const struct gpt2 *g, const struct sizes *part, int tensor, size_t first, size_t n,
		 float *out)
{
	struct described d = describe(&g->sizes, tensor);
	bool turned = is_turned(&g->sizes, tensor);
	struct stored s;

	if (!find(g, &d, &s))
		return; /* which gpt2_open has refused */
	for (size_t i = 0; i < n; i++)
		out[i] = safetensors_value(
			&s, place_of(&d, turned, whole_index(part, tensor, first + i)));
}

/* ---- Writing --------------------------------------------------------------------------------- */

static int failed(const char *path)
{
	fprintf(stderr, "zerotrain: %s: cannot be written: %s\n", path, strerror(errno));
	return EXIT_FAILED;
}

static int write_config(const char *folder, const struct sizes *s)
{
	char path[4096];
	FILE *f;
	bool bad;

	snprintf(path, sizeof(path), "%s/config.json", folder);
	if (!(f = fopen(path, "we")))
		return failed(path);
	fprintf(f,
		"{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
		"  \"activation_function\": \"gelu_new\",\n  \"layer_norm_epsilon\": 1e-05,\n"
		"  \"n_layer\": %d,\n  \"n_embd\": %d,\n  \"n_head\": %d,\n  \"n_positions\": %d,\n"
		"  \"n_ctx\": %d,\n  \"vocab_size\": %d,\n  \"bos_token_id\": null,\n"
		"  \"eos_token_id\": null,\n  \"tie_word_embeddings\": true,\n"
		"  \"torch_dtype\": \"float32\"\n}\n",
		s->layers, s->dim, s->heads, s->context, s->context, s->values);
	bad = ferror(f);
	return fclose(f) || bad ? failed(path) : EXIT_GOOD;
}

int gpt2_make_folder(const char *folder)
{
	bool made = mkdir(folder, 0777) == 0 || errno == EEXIST;

	return made && access(folder, W_OK | X_OK) == 0 ? EXIT_GOOD : failed(folder);
}

int gpt2_create(const char *folder, const struct sizes *s, FILE **out)
{
	int n = tensor_count(s), rc;
	struct described *all = calloc((size_t)n, sizeof(*all));
	char path[4096];

	*out = NULL;
	rc = all ? write_config(folder, s) : failed(folder);
	for (int t = 0; rc == EXIT_GOOD && t < n; t++) {
		struct described d = describe(s, t);

		all[t] = d;
		snprintf(all[t].name, sizeof(all[t].name), "transformer.%.40s", d.name);
	}
	snprintf(path, sizeof(path), "%s/model.safetensors", folder);
	if (rc == EXIT_GOOD && !(*out = fopen(path, "we")))
		rc = failed(path);
	if (rc == EXIT_GOOD && safetensors_begin(*out, all, n) < 0)
		rc = failed(path);
	free(all);
	return rc;
}

int gpt2_write(FILE *file, const struct sizes *s, int tensor, const float *values)
{
	struct described d = describe(s, tensor);
	size_t n = d.shape[0] * (d.ndims > 1 ? d.shape[1] : 1);
	float *turned = is_turned(s, tensor) ? malloc(n * sizeof(*turned)) : NULL;
	size_t written;

	if (!turned && is_turned(s, tensor))
		return -1;
	for (size_t i = 0; turned && i < n; i++)
		turned[place_of(&d, true, i)] = values[i];
	written = fwrite(turned ? turned : values, sizeof(*values), n, file);
	free(turned);
	return written == n ? 0 : -1;
}
