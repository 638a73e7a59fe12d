/* The kernels for work of a training step (struct kolo_zero_work).
 *
 * Each loop does what kolo_zero_device.h says, in the order of the host's loops. So the bits are
 * the host's, except for the payload of NaN. They are compiled without fused multiply-adds; roots
 * and quotients round as IEEE says.
 *
 * Most kernels do four elements in each thread, loaded and stored at once if all places allow it.
 * Sums of squares have 16 threads for a block of elements; each is a lane of the sum. */
#define KO_INLINE static __device__ __forceinline__
#include "kolo/kolo_zero_device.h"

#include "comm/reduce/convert.h"
#include "zero/optim/levels.h"
#include "zero/optimizers/list.h"

#include <stddef.h>

#define ON_GPU static __device__ __forceinline__

enum { THREADS = 256, TOGETHER = 4, LANES = KOLO_ZERO_LANES };

/* ---- Types ----------------------------------------------------------------------------------- */

struct f32 {
	typedef float stored;
	ON_GPU float widen(float x)
	{
		return x;
	}
	ON_GPU float narrow(float x)
	{
		return x;
	}
	ON_GPU bool finite(float x)
	{
		return (ko_bits_of_float(x) & 0x7f800000) != 0x7f800000;
	}
};

struct f16 {
	typedef uint16_t stored;
	ON_GPU float widen(uint16_t x)
	{
		return ko_float_of_f16(x);
	}
	ON_GPU uint16_t narrow(float x)
	{
		return ko_f16_of_float(x);
	}
	ON_GPU bool finite(uint16_t x)
	{
		return (x & 0x7c00) != 0x7c00;
	}
};

struct bf16 {
	typedef uint16_t stored;
	ON_GPU float widen(uint16_t x)
	{
		return ko_float_of_bf16(x);
	}
	ON_GPU uint16_t narrow(float x)
	{
		return ko_bf16_of_float(x);
	}
	ON_GPU bool finite(uint16_t x)
	{
		return (x & 0x7f80) != 0x7f80;
	}
};

template <typename A, typename B> struct equal {
	enum { YES = 0 };
};

template <typename A> struct equal<A, A> {
	enum { YES = 1 };
};

/* ---- Memory ---------------------------------------------------------------------------------- */

template <size_t BYTES> struct word;
template <> struct word<2> {
	typedef uint16_t type;
};
template <> struct word<4> {
	typedef uint32_t type;
};
template <> struct word<8> {
	typedef uint2 type;
};
template <> struct word<16> {
	typedef uint4 type;
};

template <int N, typename T> ON_GPU void load(T *x, const void *from, size_t at)
{
	typedef typename word<N * sizeof(T)>::type together;

	*(together *)x = *(const together *)((const T *)from + at);
}

template <int N, typename T> ON_GPU void store(void *to, size_t at, const T *x)
{
	typedef typename word<N * sizeof(T)>::type together;

	*(together *)((T *)to + at) = *(const together *)x;
}

/* How many elements come before the first four that are loaded at once. SIZE_MAX: another pointer
 * has another number, `head`. A NULL p fits any. */
ON_GPU size_t head_of(const void *p, size_t size)
{
	return (TOGETHER - (uintptr_t)p / size % TOGETHER) % TOGETHER;
}

ON_GPU size_t join(size_t head, const void *p, size_t size)
{
	return !p || head == head_of(p, size) ? head : SIZE_MAX;
}

/* Does all elements of the work. `some` returns whether one was not finite. */
template <typename What> ON_GPU void each(const struct kolo_zero_work &w)
{
	size_t thread = (size_t)blockIdx.x * blockDim.x + threadIdx.x,
	       step = (size_t)gridDim.x * blockDim.x;
	size_t head = What::head(w), parts, rest;
	bool bad = false;

	if (head == SIZE_MAX) {
		for (size_t i = thread; i < w.n; i += step)
			bad |= What::template some<1>(w, i);
	} else {
		head = head < w.n ? head : w.n;
		parts = (w.n - head) / TOGETHER;
		rest = head + parts * TOGETHER;
		for (size_t k = thread; k < parts; k += step)
			bad |= What::template some<TOGETHER>(w, head + k * TOGETHER);
		if (thread < head)
			bad |= What::template some<1>(w, thread);
		if (thread < w.n - rest)
			bad |= What::template some<1>(w, rest + thread);
	}
	if (bad && w.bad)
		*w.bad = 1;
}

/* ---- Casts, sums ----------------------------------------------------------------------------- */

template <typename From, typename To> struct cast {
	ON_GPU size_t head(const struct kolo_zero_work &w)
	{
		return join(head_of(w.from, sizeof(typename From::stored)), w.to,
			    sizeof(typename To::stored));
	}
	/* With equal types and factor 1 bits are copied: those of NaN, too. */
	template <int N> ON_GPU bool some(const struct kolo_zero_work &w, size_t at)
	{
		__align__(16) typename From::stored x[N];
		__align__(16) typename To::stored y[N];
		bool bad = false;

		load<N>(x, w.from, at);
		for (int i = 0; i < N; i++) {
			bad |= !From::finite(x[i]);
			y[i] = To::narrow(From::widen(x[i]) * w.factor);
		}
		if (equal<From, To>::YES && w.factor == 1)
			store<N>(w.to, at, x);
		else
			store<N>(w.to, at, y);
		return bad;
	}
};

template <typename From> struct add {
	ON_GPU size_t head(const struct kolo_zero_work &w)
	{
		return join(head_of(w.from, sizeof(typename From::stored)), w.to, sizeof(float));
	}
	template <int N> ON_GPU bool some(const struct kolo_zero_work &w, size_t at)
	{
		__align__(16) typename From::stored x[N];
		__align__(16) float sum[N];
		bool bad = false;

		load<N>(x, w.from, at);
		load<N>(sum, w.to, at);
		for (int i = 0; i < N; i++) {
			bad |= !From::finite(x[i]);
			sum[i] += From::widen(x[i]) * w.factor;
		}
		store<N>(w.to, at, sum);
		return bad;
	}
};

/* ---- Optimizers ------------------------------------------------------------------------------ */

/* The update of one element is the host's (zero/optimizers). MOMENTS that are read, STORED of them
 * written; GRADIENT: 1 if it is read. */
#define OPTIMIZER(value, name, moments, whole)                                                     \
	struct name {                                                                              \
		enum { MOMENTS = moments, STORED = whole ? moments : 0, GRADIENT = whole };        \
		ON_GPU void one(size_t i, float *p, float *m, float *v, const float *g,            \
				const struct kolo_zero_scalars &s, bool moving)                    \
		{                                                                                  \
			zero_##name(i, p, m, v, g, &s, moving);                                    \
		}                                                                                  \
	};
ZERO_OPTIMIZERS(OPTIMIZER)

ON_GPU size_t size_of(enum kolo_type type)
{
	return type == KOLO_F32 ? sizeof(float) : sizeof(uint16_t);
}

template <int N, typename To> ON_GPU void store_as(void *to, size_t at, const float *p)
{
	__align__(16) typename To::stored x[N];

	for (int i = 0; i < N; i++)
		x[i] = To::narrow(p[i]);
	store<N>(to, at, x);
}

template <int N>
ON_GPU void store_parameters(const struct kolo_zero_work &w, size_t at, const float *p)
{
	if (!w.to)
		return;
	if (w.to_type == KOLO_F32)
		store<N>(w.to, at, p);
	else if (w.to_type == KOLO_F16)
		store_as<N, f16>(w.to, at, p);
	else
		store_as<N, bf16>(w.to, at, p);
}

template <typename O, typename From> struct update {
	ON_GPU size_t head(const struct kolo_zero_work &w)
	{
		size_t head = head_of(w.master, sizeof(float));

		for (int k = 0; k < O::MOMENTS; k++)
			head = join(head, w.moment[k], sizeof(float));
		if (O::GRADIENT)
			head = join(head, w.from, sizeof(typename From::stored));
		return join(head, w.to, size_of(w.to_type));
	}
	template <int N> ON_GPU bool some(const struct kolo_zero_work &w, size_t at)
	{
		__align__(16) typename From::stored x[N] = { 0 };
		__align__(16) float p[N], g[N], m[2][N] = { { 0 }, { 0 } };

		load<N>(p, w.master, at);
		for (int k = 0; k < O::MOMENTS; k++)
			if (w.moment[k])
				load<N>(m[k], w.moment[k], at);
		if (O::GRADIENT)
			load<N>(x, w.from, at);
		for (int i = 0; i < N; i++) {
			g[i] = From::widen(x[i]) * w.factor;
			O::one(i, p, m[0], m[1], g, w.scalars, w.moment[0] != NULL);
		}
		store<N>(w.master, at, p);
		for (int k = 0; k < O::STORED; k++)
			if (w.moment[k])
				store<N>(w.moment[k], at, m[k]);
		store_parameters<N>(w, at, p);
		return false;
	}
};

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* What this thread is for: lane `lane` of block `block`, elements [first + lane, end) of the
 * work. */
struct place {
	size_t block, first, end;
	unsigned lane;
};

ON_GPU struct place place_of(const struct kolo_zero_work &w)
{
	struct place at;

	at.block = (size_t)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
	at.lane = threadIdx.x % LANES;
	at.first = at.block * KOLO_ZERO_BLOCK;
	at.end = at.first + KOLO_ZERO_BLOCK < w.n ? at.first + KOLO_ZERO_BLOCK : w.n;
	return at;
}

/* The lanes together, in their order: what the last one returns. All threads come here, and they
 * are of one warp. */
ON_GPU double together(double *sums, double mine)
{
	double sum = 0;

	sums[threadIdx.x] = mine;
	__syncwarp();
	for (unsigned l = 0; threadIdx.x % LANES == LANES - 1 && l < LANES; l++)
		sum += sums[threadIdx.x - (LANES - 1) + l];
	return sum;
}

/* y plus rounder, whose bits have a digit of it. y becomes the rest. */
ON_GPU int64_t take_digit(double *y, double rounder)
{
	union zero_double sum, none;

	sum.value = *y + rounder;
	none.value = rounder;
	*y -= sum.value - rounder;
	return (int64_t)(sum.bits - none.bits);
}

/* Calls fn(x) for each element of the lane, in order. Several are loaded before the first is used:
 * a thread that waits for each of them reads half as fast. */
template <typename T, typename Fn>
ON_GPU void each_of_lane(const void *from, const struct place &at, const Fn &fn)
{
	enum { AHEAD = 16 };
	const T *x = (const T *)from;
	size_t i = at.first + at.lane;

	for (; i + (AHEAD - 1) * LANES < at.end; i += AHEAD * LANES) {
		T loaded[AHEAD];

#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			loaded[k] = x[i + k * LANES];
#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			fn(loaded[k]);
	}
	for (; i < at.end; i += LANES)
		fn(x[i]);
}

/* Each lane takes the digits of its squares, at the level of the largest. */
template <typename From>
ON_GPU void digits_of_lane(const struct kolo_zero_work &w, const struct place &at,
			   struct zero_squares *out)
{
	typedef typename From::stored stored;
	double rounders[ZERO_LEVELS];
	uint32_t most = 0;

	each_of_lane<stored>(w.from, at, [&](stored x) {
		uint32_t bits = ko_bits_of_float(From::widen(x)) & 0x7fffffff;

		most = bits > most ? bits : most;
	});
	out->level = zero_level_of(most, ko_float_of_bits(most));
	for (int l = 0; l < ZERO_LEVELS; l++)
		out->digits[l] = 0;
	if (out->level == ZERO_NO_LEVEL || out->level == ZERO_NOT_FINITE)
		return;
	for (int l = 0; l < ZERO_LEVELS; l++)
		rounders[l] = zero_rounder(out->level - l);
	each_of_lane<stored>(w.from, at, [&](stored element) {
		double x = From::widen(element), y = x * x;

		for (int l = 0; l < ZERO_LEVELS; l++)
			out->digits[l] += take_digit(&y, rounders[l]);
	});
}

template <typename From> ON_GPU void digits(const struct kolo_zero_work &w)
{
	__shared__ struct zero_squares all[THREADS];
	struct place at = place_of(w);
	struct zero_squares sum;

	digits_of_lane<From>(w, at, &sum);
	all[threadIdx.x] = sum;
	__syncwarp();
	if (at.lane != LANES - 1 || at.first >= w.n)
		return;
	for (unsigned l = 1; l < LANES; l++)
		zero_squares_add(&sum, &all[threadIdx.x - l]);
	for (int l = 0; l < ZERO_LEVELS; l++)
		w.sums[4 * at.block + l] = (double)sum.digits[l];
	w.sums[4 * at.block + ZERO_LEVELS] = (double)sum.level;
}

template <typename From> ON_GPU void squares(const struct kolo_zero_work &w)
{
	__shared__ double sums[THREADS];
	typedef typename From::stored stored;
	struct place at = place_of(w);
	double sum = 0;

	each_of_lane<stored>(w.from, at, [&](stored element) {
		double x = From::widen(element);

		sum += x * x;
	});
	sum = together(sums, sum);
	if (at.lane == LANES - 1 && at.first < w.n)
		w.sums[at.block] = sum;
}

/* N elements of a lane from element i on: new moments, and what they add to the sums of squares of
 * masters and updates. */
template <int N, typename From>
ON_GPU void lamb_some(const struct kolo_zero_work &w, size_t i, double *p2, double *u2)
{
	const typename From::stored *from = (const typename From::stored *)w.from;
	typename From::stored x[N];
	float p[N], m[N], v[N];

#pragma unroll
	for (int k = 0; k < N; k++) {
		x[k] = from[i + k * LANES];
		p[k] = w.master[i + k * LANES];
		m[k] = w.moment[0][i + k * LANES];
		v[k] = w.moment[1][i + k * LANES];
	}
#pragma unroll
	for (int k = 0; k < N; k++) {
		float u;

		zero_adam_moments(&m[k], &v[k], From::widen(x[k]) * w.factor, &w.scalars);
		w.moment[0][i + k * LANES] = m[k];
		w.moment[1][i + k * LANES] = v[k];
		u = zero_lamb_step(p[k], m[k], v[k], &w.scalars);
		*p2 += (double)p[k] * (double)p[k];
		*u2 += (double)u * (double)u;
	}
}

template <typename From> ON_GPU void lamb_moments(const struct kolo_zero_work &w)
{
	enum { AHEAD = 8 };
	__shared__ double masters[THREADS], updates[THREADS];
	struct place at = place_of(w);
	size_t i = at.first + at.lane;
	double p2 = 0, u2 = 0;

	for (; i + (AHEAD - 1) * LANES < at.end; i += AHEAD * LANES)
		lamb_some<AHEAD, From>(w, i, &p2, &u2);
	for (; i < at.end; i += LANES)
		lamb_some<1, From>(w, i, &p2, &u2);
	p2 = together(masters, p2);
	u2 = together(updates, u2);
	if (at.lane == LANES - 1 && at.first < w.n) {
		w.sums[2 * at.block] = p2;
		w.sums[2 * at.block + 1] = u2;
	}
}

/* ---- The kernels ----------------------------------------------------------------------------- */

#define KERNEL(name, call)                                                                         \
	extern "C" __global__ void __launch_bounds__(THREADS)                                      \
		ko_zero_##name(const __grid_constant__ struct kolo_zero_work w)                    \
	{                                                                                          \
		call(w);                                                                           \
	}
#define OF(...) __VA_ARGS__

#define KERNELS(type)                                                                              \
	KERNEL(cast_##type##_f32, OF(each<cast<type, f32>>))                                       \
	KERNEL(cast_##type##_f16, OF(each<cast<type, f16>>))                                       \
	KERNEL(cast_##type##_bf16, OF(each<cast<type, bf16>>))                                     \
	KERNEL(add_##type, each<add<type>>)                                                        \
	KERNEL(squares_##type, squares<type>)                                                      \
	KERNEL(digits_##type, digits<type>)                                                        \
	KERNEL(lamb_moments_##type, lamb_moments<type>)

KERNELS(f32)
KERNELS(f16)
KERNELS(bf16)

#define UPDATE(name, type) KERNEL(name##_##type, OF(each<update<name, type>>))
#define UPDATES(value, name, moments, whole)                                                       \
	UPDATE(name, f32)                                                                          \
	UPDATE(name, f16)                                                                          \
	UPDATE(name, bf16)
ZERO_OPTIMIZERS(UPDATES)
