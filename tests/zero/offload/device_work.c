/* Work that a device does itself has the bits of the plain loops, for every type, optimizer, length
 * and start; see device_cases.h. */
#include "tests/lib/scalars.h"
#include "tests/lib/t.h"
#include "tests/zero/offload/device_cases.h"
#include "tests/zero/step/digits.h"
#include "zero/optim/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 3 * KOLO_ZERO_BLOCK + 17, MOST_BLOCKS = 4, GUARD = 256 };

static const enum kolo_type types[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };

/* What one round of cases works with: n elements, each array `shift` elements after an aligned
 * address. */
struct round {
	struct kolo_zero_device *d;
	size_t n, shift;
	uint64_t seed;
	struct results { /* pinned */
		double sums[4 * MOST_BLOCKS + 1];
		uint32_t bad;
	} * results;
};

/* Elements in the device's memory, with bytes around them that stay. */
struct array {
	char *base, *at;
	size_t bytes, room;
};

static struct array make_array(struct round *r, const void *host, size_t size)
{
	struct array a = { .bytes = r->n * size,
			   .room = r->n * size + 2 * GUARD + r->shift * size };
	char *image = malloc(a.room);
	void *memory = NULL;

	CHECK(image && kolo_zero_device_alloc(r->d, a.room, "an array", &memory) == 0);
	a.base = memory;
	a.at = a.base + GUARD + r->shift * size;
	memset(image, 0xa5, a.room);
	memcpy(image + (a.at - a.base), host, a.bytes);
	CHECK(kolo_zero_device_copy(r->d, KOLO_ZERO_UP, a.base, image, a.room) == 0);
	free(image);
	return a;
}

/* Frees it. */
static void check_array(struct round *r, struct array *a, const void *expected)
{
	char *image = malloc(a->room);
	size_t before = (size_t)(a->at - a->base);

	CHECK(image && kolo_zero_device_copy(r->d, KOLO_ZERO_DOWN, image, a->base, a->room) == 0);
	CHECK(memcmp(image + before, expected, a->bytes) == 0);
	for (size_t i = 0; i < a->room; i++)
		CHECK((i >= before && i < before + a->bytes) || image[i] == (char)0xa5);
	free(image);
	kolo_zero_device_free(r->d, a->base, a->room);
}

static void run(struct round *r, const struct kolo_zero_work *work)
{
	uint64_t ticket = 0;

	CHECK(r->d->ops->work(r->d, work, &ticket) == 0);
	CHECK(ticket > 0 && r->d->ops->wait(r->d, KOLO_ZERO_COMPUTE, ticket) == 0);
}

/* From -1 to 1, or from 0.001 on. */
static void fill(struct round *r, float *x, bool positive)
{
	for (size_t i = 0; i < r->n; i++) {
		x[i] = (float)(int32_t)(t_random(&r->seed) >> 32) / 2147483648.0f;
		if (positive)
			x[i] = fabsf(x[i]) + 1e-3f;
	}
}

static size_t blocks_of(size_t n)
{
	return (n + KOLO_ZERO_BLOCK - 1) / KOLO_ZERO_BLOCK;
}

/* ---- Casts, sums, zeros, squares ------------------------------------------------------------- */

static void cast_one(struct round *r, enum kolo_type from, enum kolo_type to, float factor,
		     bool infinite)
{
	static float x[MOST];
	static char src[4 * MOST], dst[4 * MOST];
	struct array a, b;

	fill(r, x, false);
	if (infinite)
		x[t_random(&r->seed) % r->n] = -INFINITY;
	kolo_cast(x, KOLO_F32, src, from, r->n, 1);
	kolo_cast(src, from, dst, to, r->n, factor);
	a = make_array(r, src, kolo_type_size(from));
	b = make_array(r, dst, kolo_type_size(to));
	CHECK(kolo_zero_device_copy(r->d, KOLO_ZERO_UP, b.at, src,
				    b.bytes < a.bytes ? b.bytes : a.bytes) == 0);
	r->results->bad = 0;
	run(r,
	    &(struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_CAST,
				      .n = r->n,
				      .from = a.at,
				      .from_type = from,
				      .to = b.at,
				      .to_type = to,
				      .factor = factor,
				      .bad = factor == 1 && !infinite ? NULL : &r->results->bad });
	CHECK(r->results->bad == infinite);
	check_array(r, &a, src);
	check_array(r, &b, dst);
}

static void cast(struct round *r)
{
	for (size_t k = 0; k < ARRAY_LEN(types) * ARRAY_LEN(types); k++)
		for (int way = 0; way < 4; way++)
			cast_one(r, types[k % 3], types[k / 3], way & 1 ? 0.37f : 1.0f, way & 2);
}

static void add(struct round *r)
{
	static float x[MOST], sum[MOST];
	static char src[4 * MOST];

	for (size_t k = 0; k < 2 * ARRAY_LEN(types); k++) {
		enum kolo_type from = types[k / 2];
		struct array a, b;

		fill(r, x, false);
		fill(r, sum, false);
		if (k % 2)
			x[t_random(&r->seed) % r->n] = INFINITY;
		kolo_cast(x, KOLO_F32, src, from, r->n, 1);
		a = make_array(r, src, kolo_type_size(from));
		b = make_array(r, sum, sizeof(float));
		kolo_cast(src, from, x, KOLO_F32, r->n, 0.71f);
		for (size_t i = 0; i < r->n; i++)
			sum[i] += x[i];
		r->results->bad = 0;
		run(r, &(struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_ADD,
						 .n = r->n,
						 .from = a.at,
						 .from_type = from,
						 .to = b.at,
						 .to_type = KOLO_F32,
						 .factor = 0.71f,
						 .bad = &r->results->bad });
		CHECK(r->results->bad == k % 2);
		check_array(r, &a, src);
		check_array(r, &b, sum);
	}
}

static void clear(struct round *r)
{
	static float x[MOST];
	static const char zeros[4 * MOST];

	fill(r, x, false);
	for (size_t k = 0; k < ARRAY_LEN(types); k++) {
		struct array a = make_array(r, x, kolo_type_size(types[k]));

		run(r, &(struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_CLEAR,
						 .n = r->n,
						 .to = a.at,
						 .to_type = types[k] });
		check_array(r, &a, zeros);
	}
}

static double sum_lanes(const double *lanes)
{
	double sum = 0;

	for (size_t l = 0; l < KOLO_ZERO_LANES; l++)
		sum += lanes[l];
	return sum;
}

/* The digits of the same squares. */
static void check_digits(struct round *r, const float *x, const struct array *a,
			 enum kolo_type type)
{
	r->results->sums[4 * blocks_of(r->n)] = 77;
	run(r, &(struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_DIGITS,
					 .n = r->n,
					 .from = a->at,
					 .from_type = type,
					 .sums = r->results->sums });
	for (size_t b = 0; b < blocks_of(r->n); b++) {
		size_t first = b * KOLO_ZERO_BLOCK,
		       n = r->n - first < KOLO_ZERO_BLOCK ? r->n - first : KOLO_ZERO_BLOCK;
		double want[4];

		define_digits(x + first, n, want);
		CHECK(memcmp(&r->results->sums[4 * b], want, sizeof(want)) == 0);
	}
	CHECK(r->results->sums[4 * blocks_of(r->n)] == 77);
}

static void squares(struct round *r)
{
	static float x[MOST];
	static char src[4 * MOST];

	for (size_t k = 0; k < ARRAY_LEN(types); k++) {
		struct array a;

		fill(r, x, false);
		kolo_cast(x, KOLO_F32, src, types[k], r->n, 1);
		kolo_cast(src, types[k], x, KOLO_F32, r->n, 1);
		a = make_array(r, src, kolo_type_size(types[k]));
		r->results->sums[blocks_of(r->n)] = 77;
		run(r, &(struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_SQUARES,
						 .n = r->n,
						 .from = a.at,
						 .from_type = types[k],
						 .sums = r->results->sums });
		for (size_t b = 0; b < blocks_of(r->n); b++) {
			double lanes[KOLO_ZERO_LANES] = { 0 };

			for (size_t i = b * KOLO_ZERO_BLOCK;
			     i < r->n && i < (b + 1) * KOLO_ZERO_BLOCK; i++)
				lanes[i % KOLO_ZERO_LANES] += (double)x[i] * (double)x[i];
			CHECK(r->results->sums[b] == sum_lanes(lanes));
		}
		CHECK(r->results->sums[blocks_of(r->n)] == 77);
		check_digits(r, x, &a, types[k]);
		check_array(r, &a, src);
	}
}

/* ---- Updates --------------------------------------------------------------------------------- */

/* What an update changes, on the host as it has to become. */
struct state {
	float p[MOST], m[2][MOST], g[MOST];
	char gradient[4 * MOST], param[4 * MOST];
	struct array on[5]; /* masters, two moments, gradient, parameter */
};

static int moments_of(enum kolo_zero_optimizer o)
{
	struct kolo_zero_group group = { .momentum = 0.9 };
	struct kolo_zero_optimizer_info info;

	CHECK(kolo_zero_optimizer_get(o, &group, &info) == 0);
	return info.moments;
}

static void begin_update(struct round *r, struct state *s, enum kolo_zero_optimizer o,
			 enum kolo_type type, struct kolo_zero_work *work)
{
	fill(r, s->p, false);
	fill(r, s->m[0], o == KOLO_ZERO_ADAGRAD);
	fill(r, s->m[1], true);
	fill(r, s->g, false);
	kolo_cast(s->g, KOLO_F32, s->gradient, type, r->n, 1);
	kolo_cast(s->gradient, type, s->g, KOLO_F32, r->n, 0.125f);
	s->on[0] = make_array(r, s->p, sizeof(float));
	s->on[1] = make_array(r, s->m[0], sizeof(float));
	s->on[2] = make_array(r, s->m[1], sizeof(float));
	s->on[3] = make_array(r, s->gradient, kolo_type_size(type));
	memset(s->param, 1, sizeof(s->param));
	s->on[4] = make_array(r, s->param, kolo_type_size(type));
	*work = (struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_UPDATE,
					 .n = r->n,
					 .from = s->on[3].at,
					 .from_type = type,
					 .to = s->on[4].at,
					 .to_type = type,
					 .factor = 0.125f,
					 .optimizer = o,
					 .scalars = t_scalars(0, 0),
					 .master = (float *)s->on[0].at,
					 .moment = { (float *)s->on[1].at, (float *)s->on[2].at } };
	if (moments_of(o) < 2)
		work->moment[1] = NULL;
}

static void check_update(struct round *r, struct state *s)
{
	const void *expected[] = { s->p, s->m[0], s->m[1], s->gradient, s->param };

	for (size_t k = 0; k < ARRAY_LEN(expected); k++)
		check_array(r, &s->on[k], expected[k]);
}

static void update(struct round *r)
{
	const struct zero_kernels *plain = zero_kernels_list()[0];
	static struct state s;
	struct kolo_zero_work work;

	for (int k = 0; k < 4 * ZERO_NOPTIMIZERS; k++) {
		enum kolo_zero_optimizer o = (enum kolo_zero_optimizer)(k / 4);
		enum kolo_type type = types[k % 3];

		begin_update(r, &s, o, type, &work);
		work.scalars.first = k % 4 == 1;
		work.scalars.nesterov = k % 4 == 2;
		if (o == KOLO_ZERO_LAMB)
			work.from = NULL;
		if (o == KOLO_ZERO_SGD && k % 4 == 3)
			work.moment[0] = NULL, work.scalars.momentum = 0;
		run(r, &work);
		plain->update[o](s.p, work.moment[0] ? s.m[0] : NULL, s.m[1], s.g, r->n,
				 &work.scalars);
		kolo_cast(s.p, KOLO_F32, s.param, type, r->n, 1);
		check_update(r, &s);
	}
	/* Parameters that are masters themselves */
	begin_update(r, &s, KOLO_ZERO_ADAMW, KOLO_F32, &work);
	work.to = NULL;
	run(r, &work);
	plain->update[KOLO_ZERO_ADAMW](s.p, s.m[0], s.m[1], s.g, r->n, &work.scalars);
	check_update(r, &s);
}

static void lamb(struct round *r)
{
	const struct zero_kernels *plain = zero_kernels_list()[0];
	static struct state s;

	for (size_t k = 0; k < ARRAY_LEN(types); k++) {
		struct kolo_zero_work work;

		begin_update(r, &s, KOLO_ZERO_LAMB, types[k], &work);
		work.kind = KOLO_ZERO_WORK_LAMB;
		work.to = NULL;
		work.sums = r->results->sums;
		r->results->sums[2 * blocks_of(r->n)] = 77;
		run(r, &work);
		for (size_t at = 0; at < r->n; at += KOLO_ZERO_BLOCK) {
			size_t n = r->n - at < KOLO_ZERO_BLOCK ? r->n - at : KOLO_ZERO_BLOCK;
			const double *sums = &r->results->sums[2 * (at / KOLO_ZERO_BLOCK)];
			const struct kolo_zero_scalars scalars = t_scalars(0, 0);
			struct zero_lanes p2 = { 0 }, u2 = { 0 };

			plain->lamb_moments(s.p + at, s.m[0] + at, s.m[1] + at, s.g + at, n,
					    &scalars, &p2, &u2);
			CHECK(sums[0] == sum_lanes(p2.sum) && sums[1] == sum_lanes(u2.sum));
		}
		CHECK(r->results->sums[2 * blocks_of(r->n)] == 77);
		check_update(r, &s);
	}
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* Nobody waits for the work. */
static void copies_come_after_work(struct round *r)
{
	enum { TIMES = 50 };
	static float ones[MOST], sum[MOST];
	static const float zeros[MOST];
	struct array a, b;
	uint64_t ticket = 0, before = 0;

	for (size_t i = 0; i < r->n; i++)
		ones[i] = 1;
	a = make_array(r, ones, sizeof(float));
	b = make_array(r, zeros, sizeof(float));
	for (int k = 0; k < TIMES; k++, before = ticket) {
		CHECK(r->d->ops->work(r->d,
				      &(struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_ADD,
								.n = r->n,
								.from = a.at,
								.from_type = KOLO_F32,
								.to = b.at,
								.to_type = KOLO_F32,
								.factor = 1 },
				      &ticket) == 0);
		CHECK(ticket > before);
	}
	CHECK(kolo_zero_device_copy(r->d, KOLO_ZERO_DOWN, sum, b.at, b.bytes) == 0);
	for (size_t i = 0; i < r->n; i++)
		CHECK(sum[i] == TIMES);
	check_array(r, &a, ones);
	check_array(r, &b, sum);
}

void t_device_work(struct kolo_zero_device *d)
{
	static const size_t sizes[] = { 1, 100, KOLO_ZERO_BLOCK, KOLO_ZERO_BLOCK + 1, MOST };
	struct round r = { .d = d };

	CHECK(posix_memalign((void **)&r.results, 4096, 4096) == 0);
	CHECK(d->ops->pin(d, r.results, sizeof(*r.results)) == 0);
	copies_come_after_work(&(struct round){ .d = d, .n = MOST });
	for (size_t k = 0; k < 2 * ARRAY_LEN(sizes); k++) {
		r.n = sizes[k / 2];
		r.shift = k % 2 ? 3 : 0;
		cast(&r);
		add(&r);
		clear(&r);
		squares(&r);
		update(&r);
		lamb(&r);
	}
	d->ops->unpin(d, r.results, sizeof(*r.results));
	free(r.results);
}
