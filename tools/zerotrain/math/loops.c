/* The loops over rows. This file is compiled once for each instruction set, under the name
 * LOOPS. */
#include "tools/zerotrain/math/loops.h"
#include "tools/zerotrain/math/random.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

extern const struct loops LOOPS;

/* ---- Elements -------------------------------------------------------------------------------- */

#ifdef ZEROTRAIN_F64
static inline real exp_of(real x)
{
	return exp(x);
}
#else
/* 2^k e^r with k the integer next to x / ln 2, e^r by its series: within 2 units of the last place.
 * A function of the C library's would not be vectorised. Where the result would be infinite or
 * denormal it is the largest or least that isn't. */
static inline real exp_of(real x)
{
	const float shift = 12582912.0f; /* 1.5 * 2^23: the sum has no bits after the point */
	float clamped = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
	float shifted = clamped * 1.44269504f + shift, k = shifted - shift;
	float r = clamped - k * 0.693359375f - k * -2.12194440e-4f, power, series;
	uint32_t bits;

	series = 1.0f / 720.0f + r * (1.0f / 5040.0f);
	series = 1.0f / 120.0f + r * series;
	series = 1.0f / 24.0f + r * series;
	series = 1.0f / 6.0f + r * series;
	series = 0.5f + r * series;
	series = 1.0f + r * series;
	series = 1.0f + r * series;
	memcpy(&bits, &shifted, sizeof(bits));
	bits = (bits + 127) << 23;
	memcpy(&power, &bits, sizeof(power));
	return power * series;
}
#endif

/* LANES elements, wherever they begin. Compilers don't make such vectors of loops over arrays of
 * lanes. */
typedef real lanes
	__attribute__((vector_size(LANES * sizeof(real)), aligned(sizeof(real)), may_alias));

_Static_assert(LANES == 16, "what adds lanes up takes halves of 16");

/* The sum of both. Vectors are passed by reference: by value would need AVX-512 for it. */
static inline real sum_lanes(const lanes *a, const lanes *b)
{
	lanes both = *a + *b;
	real all[LANES];

	memcpy(all, &both, sizeof(all));
	for (int k = 0; k < 8; k++)
		all[k] += all[k + 8];
	for (int k = 0; k < 4; k++)
		all[k] += all[k + 4];
	for (int k = 0; k < 2; k++)
		all[k] += all[k + 2];
	return all[0] + all[1];
}

/* The sum of x. */
static inline real sum_of(const real *x, size_t n)
{
	lanes sum = { 0 }, last = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		sum += *(const lanes *)(x + i);
	for (int k = 0; i < n; i++, k++)
		last[k] = x[i];
	return sum_lanes(&sum, &last);
}

/* The sum of (a - shift) (b - shift). */
static inline real sum_of_products(const real *a, const real *b, real shift, size_t n)
{
	lanes sum = { 0 }, last = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		sum += (*(const lanes *)(a + i) - shift) * (*(const lanes *)(b + i) - shift);
	for (int k = 0; i < n; i++, k++)
		last[k] = (a[i] - shift) * (b[i] - shift);
	return sum_lanes(&sum, &last);
}

/* The sum of a b (c - shift). */
static inline real sum_of_triples(const real *a, const real *b, const real *c, real shift, size_t n)
{
	lanes sum = { 0 }, last = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		sum += *(const lanes *)(a + i) * *(const lanes *)(b + i) *
		       (*(const lanes *)(c + i) - shift);
	for (int k = 0; i < n; i++, k++)
		last[k] = a[i] * b[i] * (c[i] - shift);
	return sum_lanes(&sum, &last);
}

static inline real max_of(const real *x, size_t n)
{
	real all[LANES], max = x[0];
	size_t i = 0;

	if (n >= LANES) {
		lanes most = *(const lanes *)x;

		for (i = LANES; i + LANES <= n; i += LANES) {
			lanes next = *(const lanes *)(x + i);
			__typeof__(next > most) more = next > most;

			most = (lanes)(((__typeof__(more))next & more) |
				       ((__typeof__(more))most & ~more));
		}
		memcpy(all, &most, sizeof(all));
		for (int k = 0; k < 8; k++)
			all[k] = all[k + 8] > all[k] ? all[k + 8] : all[k];
		for (int k = 0; k < 4; k++)
			all[k] = all[k + 4] > all[k] ? all[k + 4] : all[k];
		for (int k = 0; k < 4; k++)
			max = all[k] > max ? all[k] : max;
	}
	for (; i < n; i++)
		max = x[i] > max ? x[i] : max;
	return max;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void norm(const struct norm *p, const real *x, real *y, size_t rows, size_t n)
{
	for (size_t r = 0; r < rows; r++, x += n, y += n) {
		real mean = p->bias ? sum_of(x, n) / (real)n : 0;
		real variance = sum_of_products(x, x, mean, n) / (real)n;
		real rstd = (real)(1 / sqrt((double)variance + p->eps));

		for (size_t i = 0; i < n; i++)
			y[i] = (x[i] - mean) * rstd * p->gain[i];
		for (size_t i = 0; p->bias && i < n; i++)
			y[i] += p->bias[i];
		p->mean[r] = mean;
		p->rstd[r] = rstd;
	}
}

/* With h = (x - mean) rstd and dh = dy gain: dx = rstd (dh - mean(dh) - h mean(dh h)). The second
 * term is the mean's, which is a constant if there is no bias. */
static void norm_back(const struct norm *p, const real *x, const real *dy, real *dx, real *dgain,
		      real *dbias, size_t rows, size_t n)
{
	memset(dgain, 0, n * sizeof(*dgain));
	if (p->bias)
		memset(dbias, 0, n * sizeof(*dbias));
	for (size_t r = 0; r < rows; r++, x += n, dy += n, dx += n) {
		real mean = p->mean[r], rstd = p->rstd[r];
		real mean_dh = p->bias ? sum_of_products(dy, p->gain, 0, n) / (real)n : 0;
		real mean_dhh = rstd * sum_of_triples(dy, p->gain, x, mean, n) / (real)n;

		for (size_t i = 0; i < n; i++) {
			real h = (x[i] - mean) * rstd;

			dgain[i] += dy[i] * h;
			dx[i] += rstd * (dy[i] * p->gain[i] - mean_dh - h * mean_dhh);
		}
		for (size_t i = 0; p->bias && i < n; i++)
			dbias[i] += dy[i];
	}
}

/* n, up to whole lanes or to `room`: loops over single elements take longer. */
static inline size_t whole_lanes(size_t n, size_t room)
{
	size_t whole = (n + LANES - 1) / LANES * LANES;

	return whole < room ? whole : room;
}

/* What is after a row's last score becomes that score, which changes no largest one, and then 0. */
static void softmax(real *x, size_t rows, size_t first, size_t stride, real factor)
{
	size_t width = first + rows;

	for (size_t t = first; t < width; t++, x += stride) {
		size_t whole = whole_lanes(t + 1, width);
		real max, scale;

		for (size_t i = t + 1; i < whole; i++)
			x[i] = x[t];
		max = max_of(x, whole) * factor;
		for (size_t i = 0; i < whole; i++)
			x[i] = exp_of(x[i] * factor - max);
		memset(x + t + 1, 0, (width - t - 1) * sizeof(*x));
		scale = 1 / sum_of(x, whole);
		for (size_t i = 0; i <= t; i++)
			x[i] *= scale;
	}
}

/* ds = factor p (dp - the sum of p dp). */
static void softmax_back(const real *p, real *dp, size_t rows, size_t first, size_t stride,
			 real factor)
{
	size_t width = first + rows;

	for (size_t t = first; t < width; t++, p += stride, dp += stride) {
		real sum = sum_of_products(p, dp, 0, t + 1);

		for (size_t i = 0; i <= t; i++)
			dp[i] = factor * p[i] * (dp[i] - sum);
		memset(dp + t + 1, 0, (width - t - 1) * sizeof(*dp));
	}
}

/* The elements that row t has. */
static inline size_t limit_of(size_t first, size_t t, size_t seen)
{
	return first + t + 1 < seen ? first + t + 1 : seen;
}

static void merge(const struct merge *m, real *x, size_t rows, size_t first, size_t seen,
		  size_t stride, real factor)
{
	for (size_t t = 0; t < rows; t++, x += stride) {
		size_t n = limit_of(first, t, seen);
		real largest = max_of(x, n) * factor, *o = m->o + t * m->stride, scale;

		if (largest < m->most[t])
			largest = m->most[t];
		scale = exp_of(m->most[t] - largest);
		for (size_t i = 0; i < n; i++)
			x[i] = exp_of(x[i] * factor - largest);
		memset(x + n, 0, (seen - n) * sizeof(*x));
		m->most[t] = largest;
		m->sums[t] = m->sums[t] * scale + sum_of(x, n);
		for (size_t i = 0; i < m->width; i++)
			o[i] *= scale;
	}
}

static void shares(real *x, size_t rows, size_t first, size_t seen, size_t stride, real factor,
		   const real *logs)
{
	for (size_t t = 0; t < rows; t++, x += stride) {
		size_t n = limit_of(first, t, seen);

		for (size_t i = 0; i < n; i++)
			x[i] = exp_of(x[i] * factor - logs[t]);
		memset(x + n, 0, (seen - n) * sizeof(*x));
	}
}

static void shares_back(const real *p, real *dp, size_t rows, size_t seen, size_t stride,
			real factor, const real *common)
{
	for (size_t t = 0; t < rows; t++, p += stride, dp += stride)
		for (size_t i = 0; i < seen; i++)
			dp[i] = factor * p[i] * (dp[i] - common[t]);
}

static real dot(const real *a, const real *b, size_t n)
{
	return sum_of_products(a, b, 0, n);
}

static void sum_rows(const real *x, real *out, size_t rows, size_t n)
{
	memset(out, 0, n * sizeof(*out));
	for (size_t r = 0; r < rows; r++, x += n)
		for (size_t i = 0; i < n; i++)
			out[i] += x[i];
}

static double cross_entropy(real *x, const token *targets, const uint8_t *counted, size_t rows,
			    size_t n, real factor)
{
	double loss = 0;

	for (size_t r = 0; r < rows; r++, x += n) {
		real max, right, sum;

		if (counted && !counted[r]) {
			memset(x, 0, n * sizeof(*x));
			continue;
		}
		max = max_of(x, n);
		right = x[targets[r]] - max;
		for (size_t i = 0; i < n; i++)
			x[i] = exp_of(x[i] - max);
		sum = sum_of(x, n);
		loss += log((double)sum) - (double)right;
		for (size_t i = 0; i < n; i++)
			x[i] *= factor / sum;
		x[targets[r]] -= factor;
	}
	return loss;
}

/* ---- Arrays ---------------------------------------------------------------------------------- */

static const real gelu_a = (real)1.5957691216057308, gelu_b = (real)0.044715; /* 2 sqrt(2 / pi) */

static void gelu(const real *x, real *y, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] = x[i] / (1 + exp_of(-gelu_a * (x[i] + gelu_b * x[i] * x[i] * x[i])));
}

static void gelu_back(const real *x, const real *dy, real *dx, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		real square = x[i] * x[i];
		real s = 1 / (1 + exp_of(-gelu_a * (x[i] + gelu_b * square * x[i])));

		dx[i] = dy[i] * (s + x[i] * s * (1 - s) * gelu_a * (1 + 3 * gelu_b * square));
	}
}

static void swiglu(const real *x, real *y, size_t rows, size_t n)
{
	for (size_t r = 0; r < rows; r++, x += 2 * n, y += n)
		for (size_t i = 0; i < n; i++)
			y[i] = x[i] / (1 + exp_of(-x[i])) * x[n + i];
}

/* From the last row to the first: so no row of dy is written over before it was read. */
static void swiglu_back(const real *x, const real *dy, real *dx, size_t rows, size_t n)
{
	for (size_t r = rows; r-- > 0;) {
		const real *gate = x + r * 2 * n, *other = gate + n, *from = dy + r * n;
		real *dgate = dx + r * 2 * n, *dother = dgate + n;

		for (size_t i = 0; i < n; i++) {
			real s = 1 / (1 + exp_of(-gate[i])), d = from[i];

			dother[i] = d * gate[i] * s;
			dgate[i] = d * other[i] * s * (1 + gate[i] * (1 - s));
		}
	}
}

static void rotate(real *x, const real *turn, real sign, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		real a = x[i], b = x[n + i], sine = sign * turn[n + i];

		x[i] = a * turn[i] - b * sine;
		x[n + i] = b * turn[i] + a * sine;
	}
}

static void add(const real *x, const real *a, real *y, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] = x[i] + a[i];
}

static void drop(const real *x, real *y, size_t n, double rate, uint64_t key, size_t first)
{
	uint32_t limit = (uint32_t)(rate * 4294967296.0);
	real factor = (real)(1 / (1 - rate));

	for (size_t i = 0; i < n; i++)
		y[i] = draw_word(key, (uint32_t)(first + i)) < limit ? 0 : x[i] * factor;
}

const struct loops LOOPS = {
	.norm = norm,
	.norm_back = norm_back,
	.gelu = gelu,
	.gelu_back = gelu_back,
	.swiglu = swiglu,
	.swiglu_back = swiglu_back,
	.rotate = rotate,
	.softmax = softmax,
	.softmax_back = softmax_back,
	.merge = merge,
	.shares = shares,
	.shares_back = shares_back,
	.dot = dot,
	.sum_rows = sum_rows,
	.add = add,
	.drop = drop,
	.cross_entropy = cross_entropy,
};
