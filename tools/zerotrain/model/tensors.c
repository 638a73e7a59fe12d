/* Lists a GPT's tensors: names, shapes, and values before training. */
#include "tools/zerotrain/model/tensors.h"
#include "tools/zerotrain/math/random.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

static const char *const names[PER_BLOCK] = {
	"norm1.gain", "norm1.bias", "qkv.weight",   "qkv.bias",   "project.weight", "project.bias",
	"norm2.gain", "norm2.bias", "widen.weight", "widen.bias", "narrow.weight",  "narrow.bias",
};

int tensor_count(const struct sizes *s)
{
	return FIRST_BLOCK + PER_BLOCK * s->layers + 2;
}

/* What is divided over a tensor group: nothing, rows, those of queries, keys and values each, or
 * columns. */
enum division { WHOLE, ROWS, THREE_ROWS, COLUMNS };

/* Rows and columns of one of a block's, in units of D; columns 0: a vector. */
static const struct {
	int rows, columns;
	enum division division;
} shapes[PER_BLOCK] = {
	{ 1, 0, WHOLE },   { 1, 0, WHOLE }, { 3, 1, THREE_ROWS }, { 3, 0, THREE_ROWS },
	{ 1, 1, COLUMNS }, { 1, 0, WHOLE }, { 1, 0, WHOLE },      { 1, 0, WHOLE },
	{ 4, 1, ROWS },    { 4, 0, ROWS },  { 1, 4, COLUMNS },    { 1, 0, WHOLE },
};

static size_t group_size(const struct sizes *s)
{
	return s->tensor_size > 1 ? (size_t)s->tensor_size : 1;
}

static enum division division_of(const struct sizes *s, int tensor)
{
	if (tensor < FIRST_BLOCK)
		return tensor == BYTES ? ROWS : WHOLE;
	return (tensor - FIRST_BLOCK) / PER_BLOCK < s->layers
		       ? shapes[(tensor - FIRST_BLOCK) % PER_BLOCK].division
		       : WHOLE;
}

static struct tensor_shape whole_shape(const struct sizes *s, int tensor)
{
	struct tensor_shape t = { .rows = (size_t)s->dim };
	int block = (tensor - FIRST_BLOCK) / PER_BLOCK, part = (tensor - FIRST_BLOCK) % PER_BLOCK;

	if (tensor < FIRST_BLOCK) {
		snprintf(t.name, sizeof(t.name), "%s", tensor == BYTES ? "bytes" : "places");
		t.rows = (size_t)(tensor == BYTES ? s->values : s->context);
		t.columns = (size_t)s->dim;
	} else if (block < s->layers) {
		snprintf(t.name, sizeof(t.name), "%d.%s", block % 10000, names[part]);
		t.rows = (size_t)(shapes[part].rows * s->dim);
		t.columns = (size_t)(shapes[part].columns * s->dim);
	} else {
		snprintf(t.name, sizeof(t.name), "norm.%s", part == 0 ? "gain" : "bias");
	}
	return t;
}

struct tensor_shape tensor_shape_of(const struct sizes *s, int tensor)
{
	struct tensor_shape t = whole_shape(s, tensor);
	enum division division = division_of(s, tensor);

	if (division == COLUMNS)
		t.columns /= group_size(s);
	else if (division != WHOLE)
		t.rows /= group_size(s);
	t.divided = division != WHOLE;
	t.dim = division == COLUMNS;
	t.fused = division == THREE_ROWS ? 3 : 1;
	t.n = t.rows * (t.columns ? t.columns : 1);
	return t;
}

bool blocks_have(const struct sizes *s, int first, int end, int tensor)
{
	int block = (tensor - FIRST_BLOCK) / PER_BLOCK;

	if (tensor < FIRST_BLOCK)
		return first == 0 || (tensor == BYTES && end == s->layers);
	return block < s->layers ? block >= first && block < end : end == s->layers;
}

size_t whole_index(const struct sizes *s, int tensor, size_t i)
{
	struct tensor_shape part = tensor_shape_of(s, tensor);
	size_t size = group_size(s), rank = (size_t)s->tensor_rank, n;

	switch (division_of(s, tensor)) {
	case WHOLE: return i;
	case COLUMNS: return (i / part.columns * size + rank) * part.columns + i % part.columns;
	case ROWS: return rank * part.n + i;
	case THREE_ROWS: n = part.n / 3; return (i / n * size + rank) * n + i % n;
	}
	return i;
}

/* Normally distributed, by Box and Muller. */
static double draw_normal(uint64_t key, uint64_t i)
{
	double radius = sqrt(-2 * log(draw_uniform(key, 2 * i)));

	return radius * cos(2 * 3.14159265358979323846 * draw_uniform(key, 2 * i + 1));
}

void tensor_init(const struct sizes *s, int tensor, size_t first, size_t n, float *out)
{
	int part = (tensor - FIRST_BLOCK) % PER_BLOCK;
	bool matrix = tensor_shape_of(s, tensor).columns > 0;
	bool gain = tensor >= FIRST_BLOCK && (part == NORM1 || part == NORM2);
	double deviation = 0.02;
	uint64_t key = make_key(s->seed, (uint64_t)tensor);

	/* 2 L of them add up in the residual stream. */
	if (tensor >= FIRST_BLOCK && (part == PROJECT || part == NARROW))
		deviation /= sqrt(2.0 * s->layers);
	for (size_t i = 0; i < n; i++)
		out[i] = matrix ? (float)(deviation *
					  draw_normal(key, whole_index(s, tensor, first + i)))
			 : gain ? 1.0f
				: 0.0f;
}
