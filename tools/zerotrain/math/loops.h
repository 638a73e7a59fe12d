/* What a GPT computes besides matrix products: loops over rows of activations. They are compiled
 * for three instruction sets and give the same bits. Arrays are row-major. Sums go through 16
 * lanes, in an order that only the length determines. */
#ifndef TOOLS_ZEROTRAIN_MATH_LOOPS_H
#define TOOLS_ZEROTRAIN_MATH_LOOPS_H

#include "tools/zerotrain/math/real.h"

#include <stddef.h>
#include <stdint.h>

/* One normalization of rows x [rows, n]: its parameters [n], and what forward keeps [rows]. Without
 * a bias it takes 0 for the mean, and none of its functions has a dbias (RMSNorm). */
struct norm {
	const real *gain, *bias; /* bias NULL: none */
	real *mean, *rstd;       /* rstd = 1 / sqrt(variance + eps) */
	double eps;
};

/* What was found so far of rows of queries: [rows] the largest of `factor` times their scores, and
 * the sums of exponents of what is below it; and rows of `width` that go with these, `stride`
 * apart. */
struct merge {
	real *most, *sums, *o;
	size_t width, stride;
};

struct loops {
	/* y = gain (x - mean) rstd + bias. */
	void (*norm)(const struct norm *p, const real *x, real *y, size_t rows, size_t n);
	/* Adds to dx [rows, n], sets dgain [n] and dbias [n]. */
	void (*norm_back)(const struct norm *p, const real *x, const real *dy, real *dx,
			  real *dgain, real *dbias, size_t rows, size_t n);
	/* y = x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3))): GELU by its tanh formula. */
	void (*gelu)(const real *x, real *y, size_t n);
	/* dx = dy times the derivative at x; dx may be dy. */
	void (*gelu_back)(const real *x, const real *dy, real *dx, size_t n);
	/* x [rows, 2 n] is gates, and behind them what they let through: y [rows, n] = SiLU(gate)
	 * other, with SiLU(g) = g / (1 + exp(-g)). */
	void (*swiglu)(const real *x, real *y, size_t rows, size_t n);
	/* dx [rows, 2 n] of dy [rows, n], which may begin where dx does. */
	void (*swiglu_back)(const real *x, const real *dy, real *dx, size_t rows, size_t n);
	/* Turns pairs (x[i], x[i + n]), i < n, by angles with cosines turn[i] and sines turn[n + i]
	 * times `sign`. */
	void (*rotate)(real *x, const real *turn, real sign, size_t n);
	/* Rows first, first + 1, ... of scores, each `stride` apart: row t becomes the softmax of
	 * `factor` times its elements 0 to t, and 0 from t + 1 to first + rows - 1. */
	void (*softmax)(real *x, size_t rows, size_t first, size_t stride, real factor);
	/* The same of its derivative: dp becomes the scores'. */
	void (*softmax_back)(const real *p, real *dp, size_t rows, size_t first, size_t stride,
			     real factor);
	/* Scores x of queries and some more keys, row t with elements 0 to min(first + t, seen -
	 * 1): they become exponents, and 0 up to seen - 1, and what was found so far is scaled so
	 * that they can be added to it. */
	void (*merge)(const struct merge *so_far, real *x, size_t rows, size_t first, size_t seen,
		      size_t stride, real factor);
	/* Those scores once more: they become shares, exp(factor x - logs[t]). And back: dp becomes
	 * factor p (dp - common[t]). */
	void (*shares)(real *x, size_t rows, size_t first, size_t seen, size_t stride, real factor,
		       const real *logs);
	void (*shares_back)(const real *p, real *dp, size_t rows, size_t seen, size_t stride,
			    real factor, const real *common);
	/* The sum of a b. */
	real (*dot)(const real *a, const real *b, size_t n);
	/* out [n] = the sum of rows x [rows, n]. */
	void (*sum_rows)(const real *x, real *out, size_t rows, size_t n);
	/* y = x + a where kept; y may be a. */
	void (*add)(const real *x, const real *a, real *y, size_t n);
	/* y = x / (1 - rate) if kept, else 0. Forward and backward are the same. y may be x. The
	 * first element has number `first`: what is kept depends on the number and the key. */
	void (*drop)(const real *x, real *y, size_t n, double rate, uint64_t key, size_t first);
	/* Replaces logits x [rows, n] by their derivative of `factor` times the sum of losses.
	 * Returns that sum, without the factor. Of rows that are not counted it is 0; counted
	 * [rows] NULL: all are. */
	double (*cross_entropy)(real *x, const token *targets, const uint8_t *counted, size_t rows,
				size_t n, real factor);
};

/* The instructions of a processor, and of what is compiled for it. */
enum level { PLAIN, AVX2, AVX512 };
enum level processor_level(void);

/* Those that this processor runs fastest. Never fails. */
const struct loops *best_loops(void);

#endif
