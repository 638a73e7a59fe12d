/* The names of GPT-2's and Llama's tensors. GPT-2 has linear layers as [in, out]. A Llama has its
 * queries, keys and values apart, and the gate of its MLP, too. */
#include "tools/zerotrain/foreign/names.h"

#include <string.h>

/* Of a block, by this model's numbers. */
static const struct {
	const char *name;
	bool turned;
} gpt2[PER_BLOCK] = {
	{ "ln_1.weight", false },       { "ln_1.bias", false },
	{ "attn.c_attn.weight", true }, { "attn.c_attn.bias", false },
	{ "attn.c_proj.weight", true }, { "attn.c_proj.bias", false },
	{ "ln_2.weight", false },       { "ln_2.bias", false },
	{ "mlp.c_fc.weight", true },    { "mlp.c_fc.bias", false },
	{ "mlp.c_proj.weight", true },  { "mlp.c_proj.bias", false },
};
static const char *const llama[PER_BLOCK][MOST_PARTS] = {
	[NORM1] = { "input_layernorm" },
	[QKV] = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj" },
	[PROJECT] = { "self_attn.o_proj" },
	[NORM2] = { "post_attention_layernorm" },
	[WIDEN] = { "mlp.gate_proj", "mlp.up_proj" },
	[NARROW] = { "mlp.down_proj" },
};

/* A tensor's number in its block, or -1. */
static int in_block(const struct sizes *s, int tensor)
{
	bool inside = tensor >= FIRST_BLOCK && (tensor - FIRST_BLOCK) / PER_BLOCK < s->layers;

	return inside ? (tensor - FIRST_BLOCK) % PER_BLOCK : -1;
}

static bool is_turned(const struct sizes *s, int tensor)
{
	int inside = in_block(s, tensor);

	return s->kind == GPT2 && inside >= 0 && gpt2[inside].turned;
}

int foreign_parts(const struct sizes *s, int tensor)
{
	int inside = in_block(s, tensor), n = 0;

	if (!tensor_is_there(s, tensor))
		return 0;
	if (s->kind == GPT2 || inside < 0)
		return 1;
	while (n < MOST_PARTS && llama[inside][n])
		n++;
	return n;
}

static void name_gpt2(const struct sizes *s, int tensor, struct described *d)
{
	int inside = in_block(s, tensor), last = tensor_count(s) - 1;
	const char *name = tensor == BYTES    ? "wte.weight"
			   : tensor == PLACES ? "wpe.weight"
			   : tensor == last   ? NULL
			   : tensor % 2       ? "ln_f.bias"
					      : "ln_f.weight";

	if (inside >= 0)
		snprintf(d->name, sizeof(d->name), "transformer.h.%d.%s",
			 (tensor - FIRST_BLOCK) / PER_BLOCK, gpt2[inside].name);
	else if (name)
		snprintf(d->name, sizeof(d->name), "transformer.%s", name);
	else
		snprintf(d->name, sizeof(d->name), "lm_head.weight");
}

static void name_llama(const struct sizes *s, int tensor, int part, struct described *d)
{
	int inside = in_block(s, tensor), last = tensor_count(s) - 1;

	if (inside >= 0)
		snprintf(d->name, sizeof(d->name), "model.layers.%d.%s.weight",
			 (tensor - FIRST_BLOCK) / PER_BLOCK, llama[inside][part]);
	else
		snprintf(d->name, sizeof(d->name), "%s.weight",
			 tensor == BYTES  ? "model.embed_tokens"
			 : tensor == last ? "lm_head"
					  : "model.norm");
}

/* Rows of queries, keys and values that go with a head of keys, and of one part of them. */
static size_t rows_of_head(const struct sizes *s, int part)
{
	size_t w = (size_t)(s->dim / s->heads);

	return part == 0 ? w * (size_t)(s->heads / kv_heads_of(s)) : w;
}

static size_t rows_of_part(const struct sizes *s, int inside, int part, size_t whole)
{
	if (inside == QKV)
		return rows_of_head(s, part) * (size_t)kv_heads_of(s);
	return inside == WIDEN ? whole / 2 : whole;
}

struct tensor_shape foreign_whole(const struct sizes *s, int tensor)
{
	struct sizes whole = *s;

	whole.tensor_size = 1;
	return tensor_shape_of(&whole, tensor);
}

struct described foreign_describe(const struct sizes *s, int tensor, int part)
{
	struct tensor_shape shape = foreign_whole(s, tensor);
	struct described d = { .ndims = 1 };

	if (s->kind == GPT2)
		name_gpt2(s, tensor, &d);
	else
		name_llama(s, tensor, part, &d);
	if (s->kind == LLAMA)
		shape.rows = rows_of_part(s, in_block(s, tensor), part, shape.rows);
	d.shape[0] = shape.rows;
	if (shape.columns) {
		d.ndims = 2;
		d.shape[0] = is_turned(s, tensor) ? shape.columns : shape.rows;
		d.shape[1] = is_turned(s, tensor) ? shape.rows : shape.columns;
	}
	return d;
}

/* This model has QKV by heads of keys: the queries that go with one, its key, its value. */
static struct spot locate_row(const struct sizes *s, int inside, size_t row)
{
	size_t half = (size_t)inner_of(s), queries = rows_of_head(s, 0), each = rows_of_head(s, 1);
	size_t head = row / (queries + 2 * each), rest = row % (queries + 2 * each);

	if (inside == WIDEN)
		return (struct spot){ row >= half, row % half };
	if (inside != QKV)
		return (struct spot){ 0, row };
	if (rest < queries)
		return (struct spot){ 0, head * queries + rest };
	rest -= queries;
	return (struct spot){ 1 + (rest >= each), head * each + rest % each };
}

struct spot foreign_locate(const struct sizes *s, int tensor, const struct tensor_shape *whole,
			   size_t i)
{
	size_t columns = whole->columns ? whole->columns : 1;
	struct spot spot;

	if (is_turned(s, tensor))
		return (struct spot){ 0, i % columns * whole->rows + i / columns };
	if (s->kind == GPT2)
		return (struct spot){ 0, i };
	spot = locate_row(s, in_block(s, tensor), i / columns);
	spot.at = spot.at * columns + i % columns;
	return spot;
}
