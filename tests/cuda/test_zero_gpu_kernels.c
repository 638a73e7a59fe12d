/* What a CUDA device makes of work is what the engine's plain loops on the host do: every kind,
 * type and optimizer, any length and place, bit by bit, and nothing written beside it. On GPUs made
 * of threads it is the source of cuda/libcuda/zero_kernels.cu that runs, as C++ of the host's; make
 * check-cuda runs it on a GPU. */
#include "tests/cuda/gpu.h"
#include "tests/lib/scalars.h"
#include "tests/lib/t.h"

#include "zero/optim/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 20000, ROOM = (MOST + 64) * 4, PAGES = 8192, GUARD_BYTE = 0xa5 };

enum { FROM, TO, MASTER, MOMENT, SECOND, NPLACES };

static const enum kolo_type types[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };
static const size_t lengths[] = { 0,  1,  2,   3,    4,    5,    6,    7,    8,     15,  16,
				  17, 31, 127, 1000, 4095, 4096, 4097, 8191, 12293, MOST };

/* Each place on the device, what is there before, and what the host makes of it. */
static struct {
	struct kolo_zero_device *device;
	void *gpu[NPLACES];
	unsigned char before[NPLACES][ROOM], want[NPLACES][ROOM];
	unsigned char *results; /* PAGES of pinned memory: bad, and from byte 64 on sums */
	double sums[4 * (MOST / KOLO_ZERO_BLOCK + 1)];
	uint32_t bad;
} at;

static uint32_t *gpu_bad(void)
{
	return (uint32_t *)(void *)at.results;
}

static double *gpu_sums(void)
{
	return (double *)(void *)(at.results + 64);
}

static void open_device(void)
{
	t_gpu_use();
	CHECK(kolo_zero_cuda_open(0, &at.device) == 0);
	for (int k = 0; k < NPLACES; k++)
		CHECK(at.device->ops->allocate(at.device, ROOM, "test", &at.gpu[k]) == 0);
	at.results = aligned_alloc(4096, PAGES);
	CHECK(at.results && at.device->ops->pin(at.device, at.results, PAGES) == 0);
}

static void close_device(void)
{
	at.device->ops->unpin(at.device, at.results, PAGES);
	at.device->ops->close(at.device);
	free(at.results);
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Mostly of a size that an update has; now and then none, a subnormal one, a large one. */
static float value(uint64_t *seed)
{
	uint64_t x = t_random(seed);
	float f = (float)(int32_t)(x >> 32) / 2147483648.0f;

	return x % 31 == 0 ? 0 : x % 37 == 0 ? f * 1e-40f : x % 41 == 0 ? f * 3e4f : f;
}

/* n elements of a type, from byte `first` of the place on. */
static void fill(int place, size_t first, enum kolo_type type, size_t n, bool negative,
		 uint64_t *seed)
{
	static float x[MOST];

	for (size_t i = 0; i < n; i++)
		x[i] = negative ? value(seed) : fabsf(value(seed)) + 1e-3f;
	CHECK(kolo_cast(x, KOLO_F32, at.before[place] + first, type, n, 1) == 0);
}

/* Any bits but those of NaN. */
static void fill_bits(int place, size_t first, enum kolo_type type, size_t n, uint64_t *seed)
{
	unsigned char *p = at.before[place] + first;
	size_t size = kolo_type_size(type);

	for (size_t i = 0; i < n * size; i++)
		p[i] = (unsigned char)t_random(seed);
	for (size_t i = size - 1; i < n * size; i += size)
		p[i] &= 0xbf;
}

/* ---- What the host makes of it --------------------------------------------------------------- */

/* As floats times the factor. */
static const float *floats(const struct kolo_zero_work *w, float factor)
{
	static float x[MOST];

	CHECK(kolo_cast(w->from, w->from_type, x, KOLO_F32, w->n, factor) == 0);
	return x;
}

static void expect_sums(const struct kolo_zero_work *w, const struct zero_kernels *k)
{
	for (size_t first = 0, b = 0; first < w->n; first += KOLO_ZERO_BLOCK, b++) {
		size_t n = w->n - first < KOLO_ZERO_BLOCK ? w->n - first : KOLO_ZERO_BLOCK;
		struct zero_lanes p2 = { { 0 } }, u2 = { { 0 } };

		if (w->kind == KOLO_ZERO_WORK_SQUARES) {
			k->add_squares(&p2, floats(w, 1) + first, n);
			w->sums[b] = zero_lanes_sum(&p2);
			continue;
		}
		if (w->kind == KOLO_ZERO_WORK_DIGITS) {
			struct zero_squares own = zero_squares_none();

			k->squares(&own, floats(w, 1) + first, n);
			for (int l = 0; l < ZERO_LEVELS; l++)
				w->sums[4 * b + (size_t)l] = (double)own.digits[l];
			w->sums[4 * b + ZERO_LEVELS] = (double)own.level;
			continue;
		}
		k->lamb_moments(w->master + first, w->moment[0] + first, w->moment[1] + first,
				floats(w, w->factor) + first, n, &w->scalars, &p2, &u2);
		w->sums[2 * b] = zero_lanes_sum(&p2);
		w->sums[2 * b + 1] = zero_lanes_sum(&u2);
	}
}

static void expect(const struct kolo_zero_work *w)
{
	const struct zero_kernels *k = zero_kernels_list()[0];

	switch (w->kind) {
	case KOLO_ZERO_WORK_CAST:
		if (w->from_type == w->to_type && w->factor == 1)
			memcpy(w->to, w->from, w->n * kolo_type_size(w->to_type));
		else
			CHECK(kolo_cast(w->from, w->from_type, w->to, w->to_type, w->n,
					w->factor) == 0);
		break;
	case KOLO_ZERO_WORK_ADD: k->add(w->to, floats(w, w->factor), w->n); break;
	case KOLO_ZERO_WORK_CLEAR: memset(w->to, 0, w->n * kolo_type_size(w->to_type)); break;
	case KOLO_ZERO_WORK_SQUARES:
	case KOLO_ZERO_WORK_DIGITS:
	case KOLO_ZERO_WORK_LAMB: expect_sums(w, k); break;
	case KOLO_ZERO_WORK_UPDATE:
		k->update[w->optimizer](w->master, w->moment[0], w->moment[1],
					w->from ? floats(w, w->factor) : NULL, w->n, &w->scalars);
		if (w->to)
			CHECK(kolo_cast(w->master, KOLO_F32, w->to, w->to_type, w->n, 1) == 0);
		break;
	}
}

/* ---- Both ------------------------------------------------------------------------------------ */

static void copy(enum kolo_zero_lane lane, void *to, const void *from)
{
	uint64_t ticket;

	CHECK(at.device->ops->copy(at.device, lane, to, from, ROOM, &ticket) == 0);
	CHECK(at.device->ops->wait(at.device, lane, ticket) == 0);
}

/* The same work on the device: places in at.want become those on the GPU. */
static struct kolo_zero_work moved(const struct kolo_zero_work *w)
{
	const void *host[NPLACES] = { w->from, w->to, w->master, w->moment[0], w->moment[1] };
	struct kolo_zero_work out = *w;
	void *gpu[NPLACES] = { NULL };

	for (int k = 0; k < NPLACES; k++)
		if (host[k])
			gpu[k] = (char *)at.gpu[k] + ((const unsigned char *)host[k] - at.want[k]);
	out.from = gpu[FROM];
	out.to = gpu[TO];
	out.master = gpu[MASTER];
	out.moment[0] = gpu[MOMENT];
	out.moment[1] = gpu[SECOND];
	out.bad = w->bad ? gpu_bad() : NULL;
	out.sums = w->sums ? gpu_sums() : NULL;
	return out;
}

/* Does the work, whose places are in at.want, here and there. */
static void compare(const struct kolo_zero_work *w)
{
	static unsigned char got[ROOM];
	size_t blocks = (w->n + KOLO_ZERO_BLOCK - 1) / KOLO_ZERO_BLOCK;
	size_t each = w->kind == KOLO_ZERO_WORK_LAMB ? 2 : w->kind == KOLO_ZERO_WORK_DIGITS ? 4 : 1;
	size_t nsums = w->sums ? each * blocks : 0;
	struct kolo_zero_work there = moved(w);
	uint64_t ticket;

	for (int k = 0; k < NPLACES; k++)
		copy(KOLO_ZERO_UP, at.gpu[k], at.before[k]);
	memcpy(at.want, at.before, sizeof(at.want));
	memset(at.results, GUARD_BYTE, PAGES);
	*gpu_bad() = 0;
	CHECK(at.device->ops->work(at.device, &there, &ticket) == 0);
	expect(w);
	for (int k = 0; k < NPLACES; k++) {
		copy(KOLO_ZERO_DOWN, got, at.gpu[k]);
		CHECK(memcmp(got, at.want[k], ROOM) == 0);
	}
	CHECK(at.device->ops->wait(at.device, KOLO_ZERO_COMPUTE, ticket) == 0);
	CHECK(memcmp(gpu_sums(), at.sums, nsums * sizeof(double)) == 0);
	for (size_t i = 64 + nsums * sizeof(double); i < PAGES; i++)
		CHECK(at.results[i] == GUARD_BYTE);
	at.bad = *gpu_bad();
}

/* Guards, and for each place the byte where its elements begin: at the same distance from a
 * multiple of four of them, or not. */
static void begin(size_t first[NPLACES], size_t from_size, size_t to_size, uint64_t *seed)
{
	const size_t sizes[NPLACES] = { from_size, to_size, 4, 4, 4 };
	bool alike = t_random(seed) % 2;
	size_t offset = t_random(seed) % 8;

	memset(at.before, GUARD_BYTE, sizeof(at.before));
	for (int k = 0; k < NPLACES; k++)
		first[k] = sizes[k] * (alike ? offset : t_random(seed) % 8);
}

/* ---- The cases ------------------------------------------------------------------------------- */

static void try_cast(enum kolo_type from, enum kolo_type to, size_t n, float factor, uint64_t *seed)
{
	struct kolo_zero_work w = { .kind = KOLO_ZERO_WORK_CAST,
				    .n = n,
				    .from_type = from,
				    .to_type = to,
				    .factor = factor,
				    .bad = n % 2 ? &at.bad : NULL };
	size_t first[NPLACES];

	begin(first, kolo_type_size(from), kolo_type_size(to), seed);
	fill_bits(FROM, first[FROM], from, n, seed);
	w.from = at.want[FROM] + first[FROM];
	w.to = at.want[TO] + first[TO];
	compare(&w);
	CHECK(at.bad == 0);
}

static void casts_are_as_on_the_host(void **state)
{
	uint64_t seed = 1;

	(void)state;
	open_device();
	for (size_t k = 0; k < ARRAY_LEN(lengths); k++)
		for (int t = 0; t < 9; t++)
			try_cast(types[t / 3], types[t % 3], lengths[k],
				 t_random(&seed) % 2 ? 1 : 0.37f, &seed);
	close_device();
}

/* Bits of NaN too, where nothing is to be computed. */
static void equal_types_and_factor_1_are_a_copy(void **state)
{
	uint64_t seed = 2;

	(void)state;
	open_device();
	for (int t = 0; t < 3; t++) {
		struct kolo_zero_work w = { .kind = KOLO_ZERO_WORK_CAST,
					    .n = 1001,
					    .from_type = types[t],
					    .to_type = types[t],
					    .factor = 1,
					    .bad = &at.bad };
		size_t first[NPLACES];

		begin(first, kolo_type_size(types[t]), kolo_type_size(types[t]), &seed);
		memset(at.before[FROM], 0xff, ROOM);
		w.from = at.want[FROM] + first[FROM];
		w.to = at.want[TO] + first[TO];
		compare(&w);
		CHECK(at.bad == 1);
	}
	close_device();
}

static void sums_of_gradients_are_as_on_the_host(void **state)
{
	uint64_t seed = 3;

	(void)state;
	open_device();
	for (size_t k = 0; k < ARRAY_LEN(lengths); k++)
		for (int t = 0; t < 3; t++) {
			struct kolo_zero_work w = { .kind = KOLO_ZERO_WORK_ADD,
						    .n = lengths[k],
						    .from_type = types[t],
						    .to_type = KOLO_F32,
						    .factor = k % 2 ? 1 : 0.37f,
						    .bad = &at.bad };
			size_t first[NPLACES];

			begin(first, kolo_type_size(types[t]), 4, &seed);
			fill(FROM, first[FROM], types[t], w.n, true, &seed);
			fill_bits(TO, first[TO], KOLO_F32, w.n, &seed);
			w.from = at.want[FROM] + first[FROM];
			w.to = at.want[TO] + first[TO];
			compare(&w);
			CHECK(at.bad == 0);
		}
	close_device();
}

static void cleared_elements_are_0(void **state)
{
	uint64_t seed = 4;

	(void)state;
	open_device();
	for (size_t k = 0; k < ARRAY_LEN(lengths); k++) {
		struct kolo_zero_work w = { .kind = KOLO_ZERO_WORK_CLEAR,
					    .n = lengths[k],
					    .to_type = types[k % 3] };
		size_t first[NPLACES];

		begin(first, 4, kolo_type_size(w.to_type), &seed);
		w.to = at.want[TO] + first[TO];
		compare(&w);
	}
	close_device();
}

/* One element of each of some places. */
static void what_is_not_finite_is_found_wherever_it_is(void **state)
{
	static const float bad[] = { INFINITY, -INFINITY, NAN };
	uint64_t seed = 5;

	(void)state;
	open_device();
	for (int k = 0; k < 90; k++) {
		enum kolo_type from = types[k % 3];
		size_t size = kolo_type_size(from), n = k < 60 ? (size_t)k + 1 : 5003,
		       place = t_random(&seed) % n, first[NPLACES];
		struct kolo_zero_work w = { .kind = k % 2 ? KOLO_ZERO_WORK_CAST
							  : KOLO_ZERO_WORK_ADD,
					    .n = n,
					    .from_type = from,
					    .to_type = KOLO_F32,
					    .factor = 0, /* it is what comes in that counts */
					    .bad = gpu_bad() };
		uint64_t ticket;

		begin(first, size, 4, &seed);
		CHECK(kolo_cast(&bad[k / 3 % 3], KOLO_F32,
				at.before[FROM] + first[FROM] + place * size, from, 1, 1) == 0);
		*gpu_bad() = 0;
		copy(KOLO_ZERO_UP, at.gpu[FROM], at.before[FROM]);
		w.from = (char *)at.gpu[FROM] + first[FROM];
		w.to = (char *)at.gpu[TO] + first[TO];
		CHECK(at.device->ops->work(at.device, &w, &ticket) == 0);
		CHECK(at.device->ops->wait(at.device, KOLO_ZERO_COMPUTE, ticket) == 0);
		CHECK(*gpu_bad() == 1);
	}
	close_device();
}

static void compare_squares(enum kolo_zero_work_kind kind, enum kolo_type type, size_t n,
			    bool any_bits, uint64_t *seed)
{
	struct kolo_zero_work w = { .kind = kind, .n = n, .from_type = type, .sums = at.sums };
	size_t first[NPLACES];

	begin(first, kolo_type_size(type), 4, seed);
	if (any_bits)
		fill_bits(FROM, first[FROM], type, n, seed);
	else
		fill(FROM, first[FROM], type, n, true, seed);
	w.from = at.want[FROM] + first[FROM];
	compare(&w);
}

static void squares_are_added_in_the_order_of_the_host(void **state)
{
	uint64_t seed = 6;

	(void)state;
	open_device();
	for (size_t k = 0; k < ARRAY_LEN(lengths); k++)
		for (int t = 0; t < 3; t++)
			compare_squares(KOLO_ZERO_WORK_SQUARES, types[t], lengths[k], false, &seed);
	close_device();
}

/* Of values alike, of all magnitudes, of nothing, and of one that is not finite. */
static void digits_of_squares_are_those_of_the_host(void **state)
{
	uint64_t seed = 16;

	(void)state;
	open_device();
	for (size_t k = 0; k < ARRAY_LEN(lengths); k++)
		for (int t = 0; t < 3; t++)
			for (int any = 0; any < 2; any++)
				compare_squares(KOLO_ZERO_WORK_DIGITS, types[t], lengths[k], any,
						&seed);
	for (int bad = 0; bad < 2; bad++) {
		struct kolo_zero_work w = { .kind = KOLO_ZERO_WORK_DIGITS,
					    .n = MOST,
					    .from_type = KOLO_F32,
					    .sums = at.sums };
		size_t first[NPLACES];
		const float infinity = INFINITY;

		begin(first, sizeof(float), 4, &seed);
		memset(at.before[FROM] + first[FROM], 0, MOST * sizeof(float));
		if (bad)
			memcpy(at.before[FROM] + first[FROM] + 4 * 5000, &infinity,
			       sizeof(infinity));
		w.from = at.want[FROM] + first[FROM];
		compare(&w);
		CHECK(at.sums[3] == -1000 && at.sums[4 + 3] == (bad ? 1000 : -1000));
	}
	close_device();
}

static struct kolo_zero_work stepping(enum kolo_zero_optimizer optimizer, enum kolo_type from,
				      size_t n, size_t first[NPLACES], uint64_t *seed)
{
	struct kolo_zero_work w = { .n = n,
				    .from = at.want[FROM] + first[FROM],
				    .from_type = from,
				    .factor = 0.37f,
				    .optimizer = optimizer,
				    .scalars =
					    t_scalars(t_random(seed) % 3 == 0, t_random(seed) % 2),
				    .master = (float *)(void *)(at.want[MASTER] + first[MASTER]) };
	bool second = optimizer == KOLO_ZERO_ADAMW || optimizer == KOLO_ZERO_ADAM ||
		      optimizer == KOLO_ZERO_LAMB;

	fill(FROM, first[FROM], from, n, true, seed);
	fill(MASTER, first[MASTER], KOLO_F32, n, true, seed);
	/* Adagrad's is a sum of squares; momentum is not everybody's. */
	fill(MOMENT, first[MOMENT], KOLO_F32, n, optimizer != KOLO_ZERO_ADAGRAD, seed);
	fill(SECOND, first[SECOND], KOLO_F32, n, false, seed);
	if (optimizer != KOLO_ZERO_SGD || t_random(seed) % 2)
		w.moment[0] = (float *)(void *)(at.want[MOMENT] + first[MOMENT]);
	if (second)
		w.moment[1] = (float *)(void *)(at.want[SECOND] + first[SECOND]);
	return w;
}

static void try_update(enum kolo_zero_optimizer optimizer, enum kolo_type from, int to, size_t n,
		       uint64_t *seed)
{
	enum kolo_type to_type = to < 3 ? types[to] : KOLO_F32;
	struct kolo_zero_work w;
	size_t first[NPLACES];

	begin(first, kolo_type_size(from), kolo_type_size(to_type), seed);
	w = stepping(optimizer, from, n, first, seed);
	w.kind = KOLO_ZERO_WORK_UPDATE;
	w.to = to < 3 ? at.want[TO] + first[TO] : NULL;
	w.to_type = to_type;
	if (optimizer == KOLO_ZERO_LAMB)
		w.from = NULL;
	compare(&w);
}

static void updates_of_all_optimizers_are_as_on_the_host(void **state)
{
	uint64_t seed = 7;

	(void)state;
	open_device();
	for (int o = 0; o < ZERO_NOPTIMIZERS; o++)
		for (int t = 0; t < 12; t++)
			for (size_t k = t % 2; k < ARRAY_LEN(lengths); k += 2)
				try_update((enum kolo_zero_optimizer)o, types[t % 3], t / 3,
					   lengths[k], &seed);
	close_device();
}

static void moments_and_sums_of_lamb_are_as_on_the_host(void **state)
{
	uint64_t seed = 8;

	(void)state;
	open_device();
	for (size_t k = 0; k < ARRAY_LEN(lengths); k++)
		for (int t = 0; t < 3; t += 2) {
			struct kolo_zero_work w;
			size_t first[NPLACES];

			begin(first, kolo_type_size(types[t]), 4, &seed);
			w = stepping(KOLO_ZERO_LAMB, types[t], lengths[k], first, &seed);
			w.kind = KOLO_ZERO_WORK_LAMB;
			w.sums = at.sums;
			compare(&w);
		}
	close_device();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(casts_are_as_on_the_host),
	cmocka_unit_test(equal_types_and_factor_1_are_a_copy),
	cmocka_unit_test(sums_of_gradients_are_as_on_the_host),
	cmocka_unit_test(cleared_elements_are_0),
	cmocka_unit_test(what_is_not_finite_is_found_wherever_it_is),
	cmocka_unit_test(squares_are_added_in_the_order_of_the_host),
	cmocka_unit_test(digits_of_squares_are_those_of_the_host),
	cmocka_unit_test(updates_of_all_optimizers_are_as_on_the_host),
	cmocka_unit_test(moments_and_sums_of_lamb_are_as_on_the_host),
};

T_MAIN(tests)
