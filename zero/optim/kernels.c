/* The loops over elements, as a table (ZERO_KERNELS). This file is compiled once for each
 * instruction set, with another name for the table. It is plain C that compilers vectorise. The
 * order of operations is torch's, so that results differ from torch's in the last bit at most. */
#include "zero/optim/kernels.h"

#include <string.h>

/* Returns g + weight decay times p, if weight decay is L2 regularization as in torch. */
static inline float decayed(float g, float p, const struct kolo_zero_scalars *s)
{
	return g + s->decay * p;
}

/* Both moments of Adam. */
static inline void moments(float *m, float *v, float g, const struct kolo_zero_scalars *s)
{
	*m = *m * s->beta1 + g * s->rest1;
	*v = *v * s->beta2 + s->rest2 * g * g;
}

static void adamw(float *restrict p, float *restrict m, float *restrict v, const float *restrict g,
		  size_t n, const struct kolo_zero_scalars *scalars)
{
	const struct kolo_zero_scalars s = *scalars;

	for (size_t i = 0; i < n; i++) {
		moments(&m[i], &v[i], g[i], &s);
		p[i] = p[i] * s.keep - s.rate * m[i] / (__builtin_sqrtf(v[i]) / s.root2 + s.eps);
	}
}

static void adam(float *restrict p, float *restrict m, float *restrict v, const float *restrict g,
		 size_t n, const struct kolo_zero_scalars *scalars)
{
	const struct kolo_zero_scalars s = *scalars;

	for (size_t i = 0; i < n; i++) {
		moments(&m[i], &v[i], decayed(g[i], p[i], &s), &s);
		p[i] -= s.rate * m[i] / (__builtin_sqrtf(v[i]) / s.root2 + s.eps);
	}
}

/* m: the momentum; NULL without one. */
static void sgd(float *restrict p, float *restrict m, float *restrict v, const float *restrict g,
		size_t n, const struct kolo_zero_scalars *scalars)
{
	const struct kolo_zero_scalars s = *scalars;

	(void)v;
	for (size_t i = 0; i < n && !m; i++)
		p[i] -= s.rate * decayed(g[i], p[i], &s);
	for (size_t i = 0; i < n && m; i++) {
		float d = decayed(g[i], p[i], &s);

		m[i] = s.first ? d : m[i] * s.momentum + s.rest * d;
		p[i] -= s.rate * (s.nesterov ? d + s.momentum * m[i] : m[i]);
	}
}

static void lion(float *restrict p, float *restrict m, float *restrict v, const float *restrict g,
		 size_t n, const struct kolo_zero_scalars *scalars)
{
	const struct kolo_zero_scalars s = *scalars;

	(void)v;
	for (size_t i = 0; i < n; i++) {
		float c = s.beta1 * m[i] + s.rest1 * g[i];
		/* Without a branch: half of the branches would be predicted wrong. */
		float sign = (float)((c > 0) - (c < 0));

		p[i] = p[i] * s.keep - s.rate * sign;
		m[i] = s.beta2 * m[i] + s.rest2 * g[i];
	}
}

/* m: the sum of squares. */
static void adagrad(float *restrict p, float *restrict m, float *restrict v,
		    const float *restrict g, size_t n, const struct kolo_zero_scalars *scalars)
{
	const struct kolo_zero_scalars s = *scalars;

	(void)v;
	for (size_t i = 0; i < n; i++) {
		float d = decayed(g[i], p[i], &s);

		m[i] += d * d;
		p[i] -= s.rate * d / (__builtin_sqrtf(m[i]) + s.eps);
	}
}

/* The update of Lamb before the trust ratio. The moments are those of this step already. */
static inline float lamb_update(float p, float m, float v, const struct kolo_zero_scalars *s)
{
	return m / s->bias1 / (__builtin_sqrtf(v) / s->root2 + s->eps) + s->decay * p;
}

static void add_squares(struct zero_lanes *lanes, const float *restrict x, size_t n)
{
	double sum[ZERO_LANES];
	size_t i = 0;

	memcpy(sum, lanes->sum, sizeof(sum));
	for (; n - i >= ZERO_LANES; i += ZERO_LANES)
		for (size_t k = 0; k < ZERO_LANES; k++)
			sum[k] += (double)x[i + k] * (double)x[i + k];
	for (size_t k = 0; k < n - i; k++)
		sum[k] += (double)x[i + k] * (double)x[i + k];
	memcpy(lanes->sum, sum, sizeof(sum));
}

/* First the updates, then their squares: compilers see two simple loops. */
static void lamb_moments(const float *restrict p, float *restrict m, float *restrict v,
			 const float *restrict g, size_t n, const struct kolo_zero_scalars *scalars,
			 struct zero_lanes *p2, struct zero_lanes *u2)
{
	enum { STEP = 16 * ZERO_LANES };
	const struct kolo_zero_scalars s = *scalars;
	float u[STEP];

	for (size_t at = 0, k; at < n; at += k) {
		k = n - at < STEP ? n - at : STEP;
		for (size_t i = 0; i < k; i++) {
			moments(&m[at + i], &v[at + i], g[at + i], &s);
			u[i] = lamb_update(p[at + i], m[at + i], v[at + i], &s);
		}
		add_squares(p2, p + at, k);
		add_squares(u2, u, k);
	}
}

/* Runs after lamb_moments. The rate has the trust ratio in it. */
static void lamb(float *restrict p, float *restrict m, float *restrict v, const float *restrict g,
		 size_t n, const struct kolo_zero_scalars *scalars)
{
	const struct kolo_zero_scalars s = *scalars;

	(void)g;
	for (size_t i = 0; i < n; i++)
		p[i] -= s.rate * lamb_update(p[i], m[i], v[i], &s);
}

static void add(float *restrict sum, const float *restrict x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum[i] += x[i];
}

static bool finite_16(const uint16_t *x, size_t n, uint16_t exponent)
{
	uint16_t bad = 0;

	for (size_t i = 0; i < n; i++)
		bad |= (x[i] & exponent) == exponent;
	return !bad;
}

static bool finite_32(const float *x, size_t n)
{
	uint32_t bad = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &x[i], sizeof(bits));
		bad |= (bits & 0x7f800000) == 0x7f800000;
	}
	return !bad;
}

/* The number of an element at an index. Different elements at an index have different numbers,
 * because a product of two 32-bit numbers loses nothing, and the exclusive or with its upper bits
 * loses nothing. Without the exclusive or, a sum would not change if two elements changed
 * places. */
static inline uint64_t number_of(uint32_t element, uint64_t index)
{
	uint32_t key = (uint32_t)index * 0x9e3779b1u + (uint32_t)(index >> 32) * 0x85ebca77u;
	uint64_t x = (uint64_t)(element ^ key) * 0xc2b2ae3du;

	return x ^ x >> 29;
}

static uint64_t checksum(const void *x, size_t size, size_t n, uint64_t first)
{
	uint64_t sum = 0;

	for (size_t i = 0; size == sizeof(uint32_t) && i < n; i++) {
		uint32_t wide;

		memcpy(&wide, (const char *)x + i * sizeof(wide), sizeof(wide));
		sum += number_of(wide, first + i);
	}
	for (size_t i = 0; size == sizeof(uint16_t) && i < n; i++) {
		uint16_t narrow;

		memcpy(&narrow, (const char *)x + i * sizeof(narrow), sizeof(narrow));
		sum += number_of(narrow, first + i);
	}
	return sum;
}

extern const struct zero_kernels ZERO_KERNELS;
const struct zero_kernels ZERO_KERNELS = {
	.update = {
		[KOLO_ZERO_ADAMW] = adamw, [KOLO_ZERO_ADAM] = adam, [KOLO_ZERO_SGD] = sgd,
		[KOLO_ZERO_LION] = lion, [KOLO_ZERO_ADAGRAD] = adagrad, [KOLO_ZERO_LAMB] = lamb,
	},
	.lamb_moments = lamb_moments,
	.add_squares = add_squares,
	.add = add,
	.finite_16 = finite_16,
	.finite_32 = finite_32,
	.checksum = checksum,
};
