/* See mlp.h. */
#include "tests/zero/step/mlp.h"

#include <math.h>
#include <string.h>

enum { IN = 7, HIDDEN = 47, MORE = 31, OUT = 5, WIDEST = 47, SCALE = 2 * MLP_LAYERS, UNUSED };

static const size_t widths[MLP_LAYERS + 1] = { IN, HIDDEN, MORE, OUT };

static size_t rows(int layer)
{
	return widths[layer];
}

static size_t columns(int layer)
{
	return widths[layer + 1];
}

size_t mlp_size(int tensor)
{
	if (tensor == SCALE)
		return IN;
	if (tensor == UNUSED)
		return 3;
	return tensor % 2 ? columns(tensor / 2) : rows(tensor / 2) * columns(tensor / 2);
}

size_t mlp_total(void)
{
	size_t n = 0;

	for (int i = 0; i < MLP_TENSORS; i++)
		n += mlp_size(i);
	return n;
}

void mlp_tensors(struct kolo_zero_tensor *out, enum kolo_type type)
{
	static const char *const names[MLP_TENSORS] = {
		"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias", "scale", "unused"
	};

	for (int i = 0; i < MLP_TENSORS; i++) {
		out[i] = (struct kolo_zero_tensor){ .name = names[i],
						    .type = type,
						    .frozen = i == SCALE };
		out[i].shape[0] = mlp_size(i);
		out[i].ndims = 1;
		if (i < SCALE && i % 2 == 0) {
			out[i].shape[0] = rows(i / 2);
			out[i].shape[out[i].ndims++] = columns(i / 2);
		}
	}
}

/* Between -1 and 1, of a number. */
static float noise(size_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
	return (float)(int32_t)(x >> 32) / 2147483648.0f;
}

void mlp_init(struct kolo_zero *zero)
{
	float values[WIDEST * WIDEST];

	for (int t = 0; t < MLP_TENSORS; t++) {
		float most = t < SCALE ? 1.5f / sqrtf((float)rows(t / 2)) : 0.5f;

		for (size_t i = 0; i < mlp_size(t); i++)
			values[i] = t == SCALE ? 0.5f + 0.1f * (float)i
					       : most * noise(i + 1000 * (size_t)t);
		kolo_zero_set(zero, t, 0, mlp_size(t), values);
	}
}

/* What a forward pass leaves for backward, of one sample. */
struct activations {
	float x[MLP_LAYERS + 1][WIDEST];
};

/* y = x W + b, then tanh but in the last layer. */
static void forward_layer(int layer, const float *weight, const float *bias, struct activations *a)
{
	for (size_t c = 0; c < columns(layer); c++) {
		float y = bias[c];

		for (size_t r = 0; r < rows(layer); r++)
			y += a->x[layer][r] * weight[r * columns(layer) + c];
		a->x[layer + 1][c] = layer < MLP_LAYERS - 1 ? tanhf(y) : y;
	}
}

/* dy of the layer's output, before this call after tanh; dx of its input. Adds to the
 * gradients. */
static void backward_layer(int layer, const float *weight, const struct activations *a,
			   const float *dy, float *dx, float *dweight, float *dbias)
{
	memset(dx, 0, WIDEST * sizeof(*dx));
	for (size_t c = 0; c < columns(layer); c++) {
		float y = a->x[layer + 1][c],
		      d = layer < MLP_LAYERS - 1 ? dy[c] * (1 - y * y) : dy[c];

		dbias[c] += d;
		for (size_t r = 0; r < rows(layer); r++) {
			dweight[r * columns(layer) + c] += a->x[layer][r] * d;
			dx[r] += weight[r * columns(layer) + c] * d;
		}
	}
}

static void load_sample(size_t sample, const float *scale, struct activations *a)
{
	for (size_t i = 0; i < IN; i++)
		a->x[0][i] = noise(sample * 31 + i) * scale[i];
}

/* The loss of one sample, and its derivative. */
static double compare(size_t sample, const struct activations *a, float *dy)
{
	double loss = 0;

	for (size_t i = 0; i < OUT; i++) {
		float target =
			tanhf(noise(sample * 31) * (float)(i + 1) + 0.3f * noise(sample * 31 + i));
		float d = a->x[MLP_LAYERS][i] - target;

		dy[i] = 2 * d / OUT;
		loss += (double)d * (double)d / OUT;
	}
	return loss;
}

double mlp_loss(const float *parameters, size_t first, size_t n, float *gradient)
{
	const float *at[MLP_TENSORS];
	float *grad[MLP_TENSORS];
	double loss = 0;

	memset(gradient, 0, mlp_total() * sizeof(*gradient));
	for (int t = 0; t < MLP_TENSORS; t++) {
		at[t] = t ? at[t - 1] + mlp_size(t - 1) : parameters;
		grad[t] = gradient + (at[t] - parameters);
	}
	for (size_t s = first; s < first + n; s++) {
		struct activations a = { 0 };
		float d[2][WIDEST] = { 0 };

		load_sample(s, at[SCALE], &a);
		for (int l = 0; l < MLP_LAYERS; l++)
			forward_layer(l, at[2 * l], at[2 * l + 1], &a);
		loss += compare(s, &a, d[0]);
		for (int l = MLP_LAYERS; l-- > 0;) {
			backward_layer(l, at[2 * l], &a, d[0], d[1], grad[2 * l], grad[2 * l + 1]);
			memcpy(d[0], d[1], sizeof(d[0]));
		}
	}
	for (size_t i = 0; n && i < mlp_total(); i++)
		gradient[i] /= (float)n;
	return n ? loss / (double)n : 0;
}

/* The parameters that forward and backward use, layer by layer as a model would, copied out as
 * floats. */
static int use_all(struct kolo_zero *zero, enum kolo_type type, float *parameters)
{
	static const int order[] = { SCALE, 0, 1, 2, 3, 4, 5, 4, 5, 2, 3, 0, 1 };
	int rc = 0;

	memset(parameters, 0, mlp_total() * sizeof(*parameters));
	for (size_t i = 0; rc == 0 && i < sizeof(order) / sizeof(order[0]); i++) {
		size_t at = 0;
		const void *values;

		for (int t = 0; t < order[i]; t++)
			at += mlp_size(t);
		rc = kolo_zero_use(zero, order[i], &values);
		if (rc == 0)
			rc = kolo_cast(values, type, parameters + at, KOLO_F32, mlp_size(order[i]),
				       1);
		if (rc == 0)
			rc = kolo_zero_release(zero, order[i]);
	}
	return rc;
}

int mlp_micro_step(struct kolo_zero *zero, enum kolo_type type, size_t first, size_t n, float scale,
		   unsigned order)
{
	float parameters[MLP_ROOM], gradient[MLP_ROOM];
	double loss;
	int rc = kolo_zero_forward(zero, n);

	if (rc == 0)
		rc = use_all(zero, type, parameters);
	if (rc < 0)
		return rc;
	loss = mlp_loss(parameters, first, n, gradient);
	rc = kolo_zero_backward(zero, loss);
	for (int i = 0; rc == 0 && i < 2 * MLP_LAYERS; i++) {
		int t = (int)(((unsigned)(2 * MLP_LAYERS - 1 - i) * (1 + 4 * (order % 2)) + order) %
			      (2 * MLP_LAYERS));
		uint32_t room[MLP_ROOM];
		size_t at = 0;

		for (int k = 0; k < t; k++)
			at += mlp_size(k);
		kolo_cast(gradient + at, KOLO_F32, room, type, mlp_size(t), scale);
		rc = kolo_zero_gradient(zero, t, room);
	}
	return rc;
}
