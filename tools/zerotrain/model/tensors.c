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
	return FIRST_BLOCK + PER_BLOCK * s->layers + 3;
}

int head_tensor(const struct sizes *s)
{
	return s->untied ? tensor_count(s) - 1 : BYTES;
}

int kv_heads_of(const struct sizes *s)
{
	return s->kv_heads ? s->kv_heads : s->heads;
}

int inner_of(const struct sizes *s)
{
	return s->inner ? s->inner : 4 * s->dim;
}

double eps_of(const struct sizes *s)
{
	return s->eps > 0 ? s->eps : 1e-5;
}

double theta_of(const struct sizes *s)
{
	return s->theta > 0 ? s->theta : 10000;
}

/* Queries, keys and values. */
size_t qkv_rows(const struct sizes *s)
{
	return (size_t)s->dim + 2 * (size_t)(s->dim / s->heads) * (size_t)kv_heads_of(s);
}

/* A LLAMA's gate, and behind it what it lets through. */
size_t wide_rows(const struct sizes *s)
{
	return (size_t)inner_of(s) * (s->kind == LLAMA ? 2 : 1);
}

static size_t group_size(const struct sizes *s)
{
	return s->tensor_size > 1 ? (size_t)s->tensor_size : 1;
}

/* A tensor's part of a block, or -1. */
static int part_of(const struct sizes *s, int tensor)
{
	bool inside = tensor >= FIRST_BLOCK && (tensor - FIRST_BLOCK) / PER_BLOCK < s->layers;

	return inside ? (tensor - FIRST_BLOCK) % PER_BLOCK : -1;
}

/* What is divided over a tensor group: nothing, rows, or columns. */
enum division { WHOLE, ROWS, COLUMNS };

static enum division division_of(const struct sizes *s, int tensor)
{
	switch (part_of(s, tensor)) {
	case QKV:
	case QKV + 1:
	case WIDEN:
	case WIDEN + 1: return ROWS;
	case PROJECT:
	case NARROW: return COLUMNS;
	case -1: return tensor == BYTES || tensor == head_tensor(s) ? ROWS : WHOLE;
	default: return WHOLE;
	}
}

/* Matrices behind each other of which each rank has the same rows. GPT-2 has queries, keys and
 * values so. A LLAMA has these head by head. */
static int fused_of(const struct sizes *s, int tensor)
{
	int part = part_of(s, tensor);

	if (part == QKV || part == QKV + 1)
		return s->kind == LLAMA ? 1 : 3;
	return part == WIDEN && s->kind == LLAMA ? 2 : 1;
}

/* Of the whole tensor; columns 0: a vector. */
static void set_block_shape(const struct sizes *s, int part, struct tensor_shape *t)
{
	size_t d = (size_t)s->dim;

	switch (part) {
	case QKV: t->columns = d; /* fall through */
	case QKV + 1: t->rows = qkv_rows(s); break;
	case PROJECT: t->columns = d; break;
	case WIDEN: t->columns = d; /* fall through */
	case WIDEN + 1: t->rows = wide_rows(s); break;
	case NARROW: t->columns = (size_t)inner_of(s); break;
	default: break;
	}
}

/* This rank's part, without the name. */
static struct tensor_shape part_shape(const struct sizes *s, int tensor)
{
	struct tensor_shape t = { .rows = (size_t)s->dim, .fused = fused_of(s, tensor) };
	enum division division = division_of(s, tensor);
	int part = part_of(s, tensor);

	if (part >= 0)
		set_block_shape(s, part, &t);
	if (tensor < FIRST_BLOCK || tensor == tensor_count(s) - 1) {
		t.rows = (size_t)(tensor == PLACES ? s->context : s->values);
		t.columns = (size_t)s->dim;
	}
	if (division == COLUMNS)
		t.columns /= group_size(s);
	else if (division == ROWS)
		t.rows /= group_size(s);
	t.divided = division != WHOLE;
	t.dim = division == COLUMNS;
	t.n = t.rows * (t.columns ? t.columns : 1);
	return t;
}

struct tensor_shape tensor_shape_of(const struct sizes *s, int tensor)
{
	struct tensor_shape t = part_shape(s, tensor);
	int part = part_of(s, tensor), last = tensor_count(s) - 1;

	if (part >= 0)
		snprintf(t.name, sizeof(t.name), "%d.%s",
			 (tensor - FIRST_BLOCK) / PER_BLOCK % 10000, names[part]);
	else
		snprintf(t.name, sizeof(t.name), "%s",
			 tensor == BYTES      ? "bytes"
			 : tensor == PLACES   ? "places"
			 : tensor == last     ? "head"
			 : tensor == last - 1 ? "norm.bias"
					      : "norm.gain");
	return t;
}

bool tensor_is_there(const struct sizes *s, int tensor)
{
	int part = part_of(s, tensor), last = tensor_count(s) - 1;
	bool bias = part >= 0 ? part % 2 : tensor == last - 1;

	if (tensor == last)
		return s->untied;
	return s->kind == GPT2 || (tensor != PLACES && !bias);
}

bool blocks_have(const struct sizes *s, int first, int end, int tensor)
{
	int block = (tensor - FIRST_BLOCK) / PER_BLOCK;

	if (!tensor_is_there(s, tensor))
		return false;
	if (tensor < FIRST_BLOCK)
		return first == 0 || (tensor == head_tensor(s) && end == s->layers);
	return block < s->layers ? block >= first && block < end : end == s->layers;
}

size_t whole_index(const struct sizes *s, int tensor, size_t i)
{
	struct tensor_shape part = part_shape(s, tensor);
	size_t size = group_size(s), rank = (size_t)s->tensor_rank, n = part.n / (size_t)part.fused;

	switch (division_of(s, tensor)) {
	case WHOLE: return i;
	case COLUMNS: return (i / part.columns * size + rank) * part.columns + i % part.columns;
	case ROWS: return (i / n * size + rank) * n + i % n;
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
	int part = part_of(s, tensor);
	bool matrix = tensor_shape_of(s, tensor).columns > 0;
	bool gain = part == NORM1 || part == NORM2 || tensor == tensor_count(s) - 3;
	double deviation = 0.02;
	uint64_t key = make_key(s->seed, (uint64_t)tensor);

	/* 2 L of them add up in the residual stream. */
	if (part == PROJECT || part == NARROW)
		deviation /= sqrt(2.0 * s->layers);
	for (size_t i = 0; i < n; i++)
		out[i] = matrix ? (float)(deviation *
					  draw_normal(key, whole_index(s, tensor, first + i)))
			 : gain ? 1.0f
				: 0.0f;
}
