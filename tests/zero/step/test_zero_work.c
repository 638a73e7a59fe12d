/* Work in host memory: every kind, type, instruction set and number of threads against loops that
 * are written out here, bit by bit and with everything round about the arrays; and the threads
 * themselves. */
#include "tests/lib/failing.h"
#include "tests/lib/scalars.h"
#include "tests/lib/t.h"
#include "tests/zero/step/digits.h"
#include "tools/common/values.h"
#include "zero/base/basics.h"
#include "zero/base/threads.h"
#include "zero/optim/kernels.h"
#include "zero/optim/work.h"

#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const enum kolo_type types[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };

/* ---- The same, written out ------------------------------------------------------------------- */

static float get(const void *x, enum kolo_type type, size_t i)
{
	return (float)values_decode(type, (const char *)x + i * kolo_type_size(type));
}

static void put(void *x, enum kolo_type type, size_t i, float value)
{
	values_encode(type, (double)value, (char *)x + i * kolo_type_size(type));
}

/* Adam's moments of element i. */
static void plain_moments(const struct kolo_zero_work *w, size_t i, float g)
{
	const struct kolo_zero_scalars *s = &w->scalars;
	float *m = &w->moment[0][i], *v = &w->moment[1][i];

	*m = *m * s->beta1 + g * s->rest1;
	*v = *v * s->beta2 + s->rest2 * g * g;
}

static float plain_lamb(const struct kolo_zero_work *w, size_t i)
{
	const struct kolo_zero_scalars *s = &w->scalars;

	return w->moment[0][i] / s->bias1 / (sqrtf(w->moment[1][i]) / s->root2 + s->eps) +
	       s->decay * w->master[i];
}

static void plain_sgd(const struct kolo_zero_work *w, size_t i, float g)
{
	const struct kolo_zero_scalars *s = &w->scalars;
	float *p = &w->master[i], *m = w->moment[0] ? &w->moment[0][i] : NULL;
	float d = g + s->decay * *p;

	if (m)
		*m = s->first ? d : *m * s->momentum + s->rest * d;
	if (!m)
		*p -= s->rate * d;
	else if (s->nesterov)
		*p -= s->rate * (d + s->momentum * *m);
	else
		*p -= s->rate * *m;
}

static void plain_step(const struct kolo_zero_work *w, size_t i, float g)
{
	const struct kolo_zero_scalars *s = &w->scalars;
	float *p = &w->master[i], *m = w->moment[0] ? &w->moment[0][i] : NULL, *v = w->moment[1], c;

	switch (w->optimizer) {
	case KOLO_ZERO_ADAMW:
		plain_moments(w, i, g);
		*p = *p * s->keep - s->rate * *m / (sqrtf(v[i]) / s->root2 + s->eps);
		break;
	case KOLO_ZERO_ADAM:
		plain_moments(w, i, g + s->decay * *p);
		*p -= s->rate * *m / (sqrtf(v[i]) / s->root2 + s->eps);
		break;
	case KOLO_ZERO_SGD: plain_sgd(w, i, g); break;
	case KOLO_ZERO_LION:
		c = s->beta1 * *m + s->rest1 * g;
		*p = *p * s->keep - s->rate * (c > 0 ? 1.0f : c < 0 ? -1.0f : 0.0f);
		*m = s->beta2 * *m + s->rest2 * g;
		break;
	case KOLO_ZERO_ADAGRAD:
		g = g + s->decay * *p;
		*m += g * g;
		*p -= s->rate * g / (sqrtf(*m) + s->eps);
		break;
	case KOLO_ZERO_LAMB: *p -= s->rate * plain_lamb(w, i); break;
	}
}

/* The squares of x, of block b, in lanes. */
static double plain_squares(const float *x, size_t n, size_t b)
{
	double lanes[KOLO_ZERO_LANES] = { 0 }, sum = 0;

	for (size_t i = b * KOLO_ZERO_BLOCK; i < n && i < (b + 1) * KOLO_ZERO_BLOCK; i++)
		lanes[i % KOLO_ZERO_LANES] += (double)x[i] * (double)x[i];
	for (int k = 0; k < KOLO_ZERO_LANES; k++)
		sum += lanes[k];
	return sum;
}

static void plain_element(const struct kolo_zero_work *w, size_t i, float *x, float *y)
{
	bool reads = w->kind != KOLO_ZERO_WORK_CLEAR &&
		     !(w->kind == KOLO_ZERO_WORK_UPDATE && w->optimizer == KOLO_ZERO_LAMB);
	float from = reads ? get(w->from, w->from_type, i) : 0, g = from * w->factor;

	if ((w->kind == KOLO_ZERO_WORK_CAST || w->kind == KOLO_ZERO_WORK_ADD) && w->bad &&
	    !isfinite(from))
		*w->bad = 1;
	switch (w->kind) {
	case KOLO_ZERO_WORK_CAST: put(w->to, w->to_type, i, g); break;
	case KOLO_ZERO_WORK_ADD: ((float *)w->to)[i] += g; break;
	case KOLO_ZERO_WORK_CLEAR: put(w->to, w->to_type, i, 0); break;
	case KOLO_ZERO_WORK_SQUARES:
	case KOLO_ZERO_WORK_DIGITS: x[i] = from; break;
	case KOLO_ZERO_WORK_UPDATE:
		plain_step(w, i, g);
		if (w->to)
			put(w->to, w->to_type, i, w->master[i]);
		break;
	case KOLO_ZERO_WORK_LAMB:
		plain_moments(w, i, g);
		x[i] = w->master[i];
		y[i] = plain_lamb(w, i);
		break;
	}
}

static void run_plain(const struct kolo_zero_work *w)
{
	float *x = calloc(w->n + 1, sizeof(*x)), *y = calloc(w->n + 1, sizeof(*y));

	CHECK(x && y);
	for (size_t i = 0; i < w->n; i++)
		plain_element(w, i, x, y);
	for (size_t b = 0; b < zero_blocks(w->n); b++) {
		if (w->kind == KOLO_ZERO_WORK_SQUARES)
			w->sums[b] = plain_squares(x, w->n, b);
		if (w->kind == KOLO_ZERO_WORK_DIGITS)
			define_digits(x + b * KOLO_ZERO_BLOCK,
				      zero_min(w->n - b * KOLO_ZERO_BLOCK, KOLO_ZERO_BLOCK),
				      &w->sums[4 * b]);
		if (w->kind == KOLO_ZERO_WORK_LAMB) {
			w->sums[2 * b] = plain_squares(x, w->n, b);
			w->sums[2 * b + 1] = plain_squares(y, w->n, b);
		}
	}
	free(x);
	free(y);
}

/* ---- Arrays ---------------------------------------------------------------------------------- */

/* All that work touches, in one piece of memory with guards between, so that one comparison shows
 * whatever differs. */
struct arrays {
	char *memory;
	size_t len;
};

enum array { FROM, TO, MASTER, MOMENT1, MOMENT2, SUMS, NARRAYS };
enum { GUARD = 64, LINE = 64 };

static size_t element_of(const struct kolo_zero_work *w, enum array array)
{
	switch (array) {
	case FROM: return kolo_type_size(w->from_type);
	case TO: return kolo_type_size(w->to_type);
	case SUMS: return sizeof(double);
	default: return sizeof(float);
	}
}

/* Where an array begins: one element after a line, since elements are aligned to themselves
 * only. */
static size_t offset_of(const struct kolo_zero_work *w, enum array array)
{
	size_t end = 0, start = 0;

	for (enum array k = 0; k <= array; k++) {
		size_t element = element_of(w, k);

		start = (end + GUARD + LINE - 1) / LINE * LINE + element;
		end = start + (k == SUMS ? 4 * zero_blocks(w->n) : w->n) * element;
	}
	return start;
}

/* The same work on arrays of its own. Pointers that are NULL stay. */
static struct kolo_zero_work place(const struct kolo_zero_work *w, const struct arrays *a)
{
	struct kolo_zero_work placed = *w;

	placed.from = w->from ? a->memory + offset_of(w, FROM) : NULL;
	placed.to = w->to ? a->memory + offset_of(w, TO) : NULL;
	placed.master = w->master ? (float *)(void *)(a->memory + offset_of(w, MASTER)) : NULL;
	for (int k = 0; k < 2; k++)
		if (w->moment[k])
			placed.moment[k] = (float *)(void *)(a->memory + offset_of(w, MOMENT1 + k));
	placed.sums = w->sums ? (double *)(void *)(a->memory + offset_of(w, SUMS)) : NULL;
	return placed;
}

/* Of many magnitudes, some of which are too small or too large for a half. */
static float random_float(uint64_t *seed)
{
	uint64_t r = t_random(seed);

	return ldexpf((float)(int32_t)(r >> 32) / 2147483648.0f,
		      (int)(r % 40) - 27 + (r % 1024 == 0 ? 20 : 0));
}

static void fill(struct arrays *a, const struct kolo_zero_work *w, uint64_t seed)
{
	struct kolo_zero_work p;

	a->len = offset_of(w, SUMS) + 4 * zero_blocks(w->n) * sizeof(double) + GUARD;
	a->memory = aligned_alloc(LINE, (a->len + LINE - 1) / LINE * LINE);
	CHECK(a->memory);
	for (size_t i = 0; i < a->len; i++)
		a->memory[i] = (char)(t_random(&seed) >> 40);
	p = place(w, a);
	for (size_t i = 0; i < w->n; i++) {
		if (p.from)
			put((void *)(uintptr_t)p.from, w->from_type, i, random_float(&seed));
		if (p.to)
			put(p.to, w->to_type, i, random_float(&seed));
		if (p.master)
			p.master[i] = random_float(&seed);
		/* Sums of squares are not negative. */
		if (p.moment[0])
			p.moment[0][i] = w->optimizer == KOLO_ZERO_ADAGRAD
						 ? fabsf(random_float(&seed))
						 : random_float(&seed);
		if (p.moment[1])
			p.moment[1][i] = fabsf(random_float(&seed));
	}
}

static struct arrays copy_of(const struct arrays *a)
{
	struct arrays copy = { aligned_alloc(LINE, (a->len + LINE - 1) / LINE * LINE), a->len };

	CHECK(copy.memory);
	memcpy(copy.memory, a->memory, a->len);
	return copy;
}

/* ---- Work ------------------------------------------------------------------------------------ */

/* Pointers that are only looked at for whether they are NULL, until `place` gives others. */
static char there[sizeof(double)];
#define THERE ((void *)there)

enum { NPOOLS = 5 };
static struct zero_threads *pools[NPOOLS]; /* the first one is none */

static void open_pools(void)
{
	static const int counts[NPOOLS] = { 0, 1, 2, 3, 5 };

	for (int i = 1; i < NPOOLS; i++)
		CHECK(zero_threads_open(counts[i], 1, &pools[i]) == 0 &&
		      zero_threads_count(pools[i]) == counts[i]);
}

static void close_pools(void)
{
	for (int i = 0; i < NPOOLS; i++)
		zero_threads_close(pools[i]);
	memset(pools, 0, sizeof(pools));
}

/* Work of one size on all threads and instruction sets against that which is written out. */
static void compare(const struct kolo_zero_work *w, uint64_t seed)
{
	struct arrays before, want;
	struct kolo_zero_work placed;

	fill(&before, w, seed);
	want = copy_of(&before);
	placed = place(w, &want);
	run_plain(&placed);
	for (const struct zero_kernels *const *k = zero_kernels_list(); *k; k++)
		for (int i = 0; i < NPOOLS; i++) {
			struct arrays got = copy_of(&before);

			placed = place(w, &got);
			zero_work_run(pools[i], *k, &placed);
			CHECK(memcmp(got.memory, want.memory, want.len) == 0);
			free(got.memory);
		}
	free(before.memory);
	free(want.memory);
}

/* Sizes about blocks, and two that several threads share. */
static void compare_sizes(struct kolo_zero_work w)
{
	static const size_t sizes[] = { 0, 1, 17, 4095, 4096, 4097, 65537, 100003 };
	size_t first = t_is_slowest() ? 5 : 0,
	       end = t_is_slowest() ? 6 : ARRAY_LEN(sizes) - t_is_slow();

	for (size_t i = first; i < end; i++) {
		w.n = sizes[i];
		compare(&w, w.n + (uint64_t)w.kind);
	}
}

static void casts_have_the_bits_of_the_definition(void **state)
{
	static const float factors[] = { 1, 0.3f, 1.0f / 65536 };

	(void)state;
	open_pools();
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		for (size_t k = 0; k < ARRAY_LEN(types); k++)
			for (size_t f = 0; f < (t_is_slowest() ? 1 : ARRAY_LEN(factors)); f++)
				compare_sizes((struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_CAST,
								       .from = THERE,
								       .from_type = types[i],
								       .to = THERE,
								       .to_type = types[k],
								       .factor = factors[f] });
	close_pools();
}

static void sums_and_squares_have_the_bits_of_the_definition(void **state)
{
	(void)state;
	open_pools();
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct kolo_zero_work w = { .kind = KOLO_ZERO_WORK_ADD,
					    .from = THERE,
					    .from_type = types[i],
					    .to = THERE,
					    .to_type = KOLO_F32,
					    .factor = 0.7f };

		compare_sizes(w);
		w.factor = 1;
		compare_sizes(w);
		compare_sizes((struct kolo_zero_work){
			.kind = KOLO_ZERO_WORK_CLEAR, .to = THERE, .to_type = types[i] });
		compare_sizes((struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_SQUARES,
						       .from = THERE,
						       .from_type = types[i],
						       .sums = THERE });
		compare_sizes((struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_DIGITS,
						       .from = THERE,
						       .from_type = types[i],
						       .sums = THERE });
	}
	close_pools();
}

static void compare_optimizer(enum kolo_zero_optimizer optimizer, int nmoments,
			      struct kolo_zero_scalars s)
{
	/* Where parameters go, if anywhere. */
	static const enum kolo_type no_parameters = KOLO_F64;
	const enum kolo_type to[] = { no_parameters, KOLO_F32, KOLO_F16, KOLO_BF16 };

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		for (size_t k = t_is_slowest() ? i : 0; k < ARRAY_LEN(to);
		     k += t_is_slowest() ? 3 : 1)
			compare_sizes((struct kolo_zero_work){
				.kind = KOLO_ZERO_WORK_UPDATE,
				.from = optimizer == KOLO_ZERO_LAMB ? NULL : THERE,
				.from_type = types[i],
				.to = to[k] == no_parameters ? NULL : THERE,
				.to_type = to[k],
				.factor = k % 2 ? 1 : 0.37f,
				.optimizer = optimizer,
				.scalars = s,
				.master = THERE,
				.moment = { nmoments > 0 ? THERE : NULL,
					    nmoments > 1 ? THERE : NULL } });
}

static void updates_have_the_bits_of_the_definition(void **state)
{
	(void)state;
	open_pools();
	compare_optimizer(KOLO_ZERO_ADAMW, 2, t_scalars(false, false));
	compare_optimizer(KOLO_ZERO_ADAM, 2, t_scalars(false, false));
	compare_optimizer(KOLO_ZERO_SGD, 0, t_scalars(true, false));
	compare_optimizer(KOLO_ZERO_SGD, 1, t_scalars(true, true));
	compare_optimizer(KOLO_ZERO_SGD, 1, t_scalars(false, false));
	compare_optimizer(KOLO_ZERO_SGD, 1, t_scalars(false, true));
	compare_optimizer(KOLO_ZERO_LION, 1, t_scalars(false, false));
	compare_optimizer(KOLO_ZERO_ADAGRAD, 1, t_scalars(false, false));
	compare_optimizer(KOLO_ZERO_LAMB, 2, t_scalars(false, false));
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		compare_sizes((struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_LAMB,
						       .from = THERE,
						       .from_type = types[i],
						       .factor = 0.37f,
						       .optimizer = KOLO_ZERO_LAMB,
						       .scalars = t_scalars(false, false),
						       .master = THERE,
						       .moment = { THERE, THERE },
						       .sums = THERE });
	close_pools();
}

/* Also those of NaNs, which a multiplication would change. */
static void copies_keep_every_bit(void **state)
{
	static uint32_t from[1 << 16], to[1 << 16];
	static uint16_t narrow[1 << 16], narrow_to[1 << 16];
	struct kolo_zero_work w = { .kind = KOLO_ZERO_WORK_CAST,
				    .n = 1 << 16,
				    .from = from,
				    .to = to,
				    .from_type = KOLO_F32,
				    .to_type = KOLO_F32,
				    .factor = 1 };

	(void)state;
	for (uint32_t i = 0; i < w.n; i++) {
		from[i] = i << 16 | i;
		narrow[i] = (uint16_t)i;
	}
	for (const struct zero_kernels *const *k = zero_kernels_list(); *k; k++) {
		memset(to, 0, sizeof(to));
		zero_work_run(NULL, *k, &w);
		CHECK(memcmp(from, to, sizeof(to)) == 0);
		for (size_t t = 1; t < ARRAY_LEN(types); t++) {
			struct kolo_zero_work v = w;

			v.from = narrow;
			v.to = narrow_to;
			v.from_type = v.to_type = types[t];
			memset(narrow_to, 0, sizeof(narrow_to));
			zero_work_run(NULL, *k, &v);
			CHECK(memcmp(narrow, narrow_to, sizeof(narrow_to)) == 0);
		}
	}
}

/* ---- What is not finite ---------------------------------------------------------------------- */

/* Work whose element i of `from` alone is bad. */
static void check_bad(struct kolo_zero_work *w, size_t i, float value)
{
	char kept[sizeof(float)];
	size_t size = kolo_type_size(w->from_type);
	char *at = (char *)(uintptr_t)w->from + i * size;

	memcpy(kept, at, size);
	put((void *)(uintptr_t)w->from, w->from_type, i, value);
	for (int pool = 0; pool < NPOOLS; pool++)
		for (const struct zero_kernels *const *k = zero_kernels_list(); *k; k++) {
			*w->bad = 0;
			zero_work_run(pools[pool], *k, w);
			CHECK(*w->bad == !isfinite(value));
		}
	memcpy(at, kept, size);
}

static void one_bad_value_anywhere_is_noticed(void **state)
{
	static const size_t places[] = { 0, 1, 1023, 1024, 4095, 4096, 33333, 69998, 69999 };
	static float from[70000], to[70000];
	uint32_t bad;

	(void)state;
	open_pools();
	for (size_t t = 0; t < ARRAY_LEN(types); t++) {
		struct kolo_zero_work w = { .n = 70000,
					    .from = from,
					    .from_type = types[t],
					    .to = to,
					    .to_type = KOLO_F32,
					    .factor = 0.5f,
					    .bad = &bad };

		for (size_t i = 0; i < w.n; i++)
			put(from, types[t], i, i % 2 ? 60000.0f : -1e-7f);
		for (size_t i = 0; i < ARRAY_LEN(places); i++) {
			w.kind = i % 2 ? KOLO_ZERO_WORK_ADD : KOLO_ZERO_WORK_CAST;
			check_bad(&w, places[i],
				  i % 3 == 0   ? INFINITY
				  : i % 3 == 1 ? -INFINITY
					       : NAN);
			check_bad(&w, places[i], 1);
		}
		/* One that was noticed before stays, and nobody has to look. */
		bad = 1;
		zero_work_run(pools[3], zero_kernels_best(), &w);
		CHECK(bad == 1);
		w.bad = NULL;
		zero_work_run(pools[3], zero_kernels_best(), &w);
	}
	close_pools();
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static void squares_of_parts_in_whole_blocks_are_those_of_the_whole(void **state)
{
	enum { N = 100003, NBLOCKS = N / KOLO_ZERO_BLOCK + 1 };
	static uint16_t from[N];
	double whole[NBLOCKS], parts[NBLOCKS];
	struct kolo_zero_work w = { .kind = KOLO_ZERO_WORK_SQUARES,
				    .n = N,
				    .from = from,
				    .from_type = KOLO_BF16,
				    .sums = whole };
	uint64_t seed = 5;

	(void)state;
	open_pools();
	for (size_t i = 0; i < N; i++)
		put(from, KOLO_BF16, i, random_float(&seed));
	zero_work_run(pools[2], zero_kernels_best(), &w);
	for (size_t cut = 0; cut < NBLOCKS; cut++) {
		memset(parts, 0, sizeof(parts));
		w.n = cut * KOLO_ZERO_BLOCK;
		w.from = from;
		w.sums = parts;
		zero_work_run(pools[cut % NPOOLS], zero_kernels_best(), &w);
		w.from = from + cut * KOLO_ZERO_BLOCK;
		w.n = N - cut * KOLO_ZERO_BLOCK;
		w.sums = parts + cut;
		zero_work_run(pools[3], zero_kernels_best(), &w);
		CHECK(memcmp(whole, parts, sizeof(whole)) == 0);
	}
	close_pools();
}

/* ---- Threads --------------------------------------------------------------------------------- */

enum { MOST_PARTS = 40, MOST_THREADS = 17 };

/* What the parts of a run saw. */
struct seen {
	int calls[MOST_PARTS];
	pid_t thread[MOST_PARTS];
	cpu_set_t cores[MOST_PARTS];
	bool blocked[MOST_PARTS]; /* signals that come from outside */
};

static pid_t thread_id(void)
{
	return (pid_t)syscall(SYS_gettid);
}

static void note_part(void *arg, int part)
{
	struct seen *seen = arg;
	sigset_t set;

	seen->calls[part]++;
	seen->thread[part] = thread_id();
	CHECK(pthread_getaffinity_np(pthread_self(), sizeof(cpu_set_t), &seen->cores[part]) == 0);
	pthread_sigmask(SIG_SETMASK, NULL, &set);
	seen->blocked[part] = sigismember(&set, SIGINT) && sigismember(&set, SIGALRM) &&
			      sigismember(&set, SIGCHLD);
}

static void each_part_is_done_once_and_on_its_thread(void **state)
{
	(void)state;
	for (int n = 1; n <= MOST_THREADS; n += n < 5 ? 1 : 4) {
		struct zero_threads *threads;

		CHECK(zero_threads_open(n, 1, &threads) == 0);
		for (int run = 0; run < (t_is_slow() ? 100 : 2000); run++) {
			int nparts = run % (MOST_PARTS + 1);
			struct seen seen = { 0 };

			zero_threads_run(threads, nparts, note_part, &seen);
			for (int p = 0; p < MOST_PARTS; p++)
				CHECK(seen.calls[p] == (p < nparts));
			/* Contiguous ranges, the first one the caller's. */
			for (int p = 0; p < nparts; p++) {
				int thread = nparts > 1 ? p * n / nparts : 0;
				int before = p > 0 ? (p - 1) * n / nparts : -1;

				CHECK((seen.thread[p] == thread_id()) == (thread == 0));
				CHECK(p == 0 ||
				      (seen.thread[p] == seen.thread[p - 1]) == (thread == before));
			}
		}
		zero_threads_close(threads);
	}
}

static void a_thread_has_the_same_parts_in_every_run(void **state)
{
	struct zero_threads *threads;
	struct seen first = { 0 };

	(void)state;
	CHECK(zero_threads_open(5, 1, &threads) == 0);
	zero_threads_run(threads, 12, note_part, &first);
	for (int run = 0; run < 200; run++) {
		struct seen seen = { 0 };

		zero_threads_run(threads, 12, note_part, &seen);
		CHECK(memcmp(seen.thread, first.thread, sizeof(seen.thread)) == 0);
	}
	zero_threads_close(threads);
}

static void without_threads_the_caller_does_all(void **state)
{
	struct seen seen = { 0 };

	(void)state;
	CHECK(zero_threads_count(NULL) == 1);
	zero_threads_run(NULL, MOST_PARTS, note_part, &seen);
	for (int p = 0; p < MOST_PARTS; p++)
		CHECK(seen.calls[p] == 1 && seen.thread[p] == thread_id());
	zero_threads_close(NULL);
}

static void the_default_is_a_share_of_the_cores(void **state)
{
	int ncores = kolo_cores(NULL, 0);

	(void)state;
	for (int sharing = 0; sharing <= ncores + 1; sharing++) {
		int want = sharing > 1 ? ncores / sharing : ncores;
		struct zero_threads *threads;

		CHECK(zero_threads_open(0, sharing, &threads) == 0);
		CHECK(zero_threads_count(threads) == (want > 0 ? want : 1));
		zero_threads_close(threads);
	}
}

/* Runs a part on each of n threads, of which `sharing` processes have the cores; how many were
 * bound, each to a core of its own. */
static int count_bound(int n, int sharing)
{
	struct zero_threads *threads;
	struct seen seen = { 0 };
	cpu_set_t own, all;
	int bound = 0;

	CHECK(n <= MOST_PARTS);
	CHECK(zero_threads_open(n, sharing, &threads) == 0);
	CHECK(pthread_getaffinity_np(pthread_self(), sizeof(own), &own) == 0);
	zero_threads_run(threads, n, note_part, &seen);
	zero_threads_close(threads);
	CPU_ZERO(&all);
	for (int p = 0; p < n; p++) {
		cpu_set_t both;

		if (p == 0 || !(CPU_COUNT(&seen.cores[p]) == 1 && CPU_COUNT(&own) > 1)) {
			CHECK(CPU_EQUAL(&seen.cores[p], &own));
			continue;
		}
		CPU_AND(&both, &all, &seen.cores[p]);
		CHECK(CPU_COUNT(&both) == 0);
		CPU_OR(&all, &all, &seen.cores[p]);
		CPU_AND(&both, &own, &seen.cores[p]);
		CHECK(CPU_COUNT(&both) == 1);
		bound++;
	}
	return bound;
}

static void threads_are_bound_where_there_are_cores_for_all(void **state)
{
	int ncores = kolo_cores(NULL, 0);

	(void)state;
	if (ncores < 2 || ncores + 1 > MOST_PARTS)
		skip();
	CHECK(count_bound(ncores, 1) == ncores - 1);
	CHECK(count_bound(2, 1) == 1);
	CHECK(count_bound(ncores + 1, 1) == 0);
	CHECK(count_bound(2, 2) == 0);
}

/* Wherever the caller is, no worker is bound to its core. */
static void a_worker_makes_room_for_the_caller(void **state)
{
	int cpus[2], ncores = kolo_cores(cpus, 2);
	struct zero_threads *threads;
	cpu_set_t own, one;

	(void)state;
	if (ncores < 2)
		skip();
	CHECK(pthread_getaffinity_np(pthread_self(), sizeof(own), &own) == 0);
	CHECK(zero_threads_open(2, 1, &threads) == 0);
	for (int run = 0; run < 10; run++) {
		struct seen seen = { 0 };

		CPU_ZERO(&one);
		CPU_SET(cpus[run % 2], &one);
		CHECK(pthread_setaffinity_np(pthread_self(), sizeof(one), &one) == 0);
		zero_threads_run(threads, 2, note_part, &seen);
		CHECK(CPU_COUNT(&seen.cores[1]) == 1 && !CPU_ISSET(cpus[run % 2], &seen.cores[1]));
	}
	zero_threads_close(threads);
	CHECK(pthread_setaffinity_np(pthread_self(), sizeof(own), &own) == 0);
}

static void threads_get_no_signals(void **state)
{
	struct zero_threads *threads;
	struct seen seen = { 0 };

	(void)state;
	CHECK(zero_threads_open(3, 1, &threads) == 0);
	zero_threads_run(threads, 3, note_part, &seen);
	CHECK(!seen.blocked[0] && seen.blocked[1] && seen.blocked[2]);
	zero_threads_close(threads);
}

/* 'S' while it sleeps. */
static char state_of(pid_t thread)
{
	char path[64], line[512] = "", *end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	f = fopen(path, "r");
	CHECK(f && fgets(line, sizeof(line), f));
	fclose(f);
	end = strrchr(line, ')');
	CHECK(end && end[1] == ' ');
	return end[2];
}

static void idle_threads_sleep(void **state)
{
	struct zero_threads *threads;
	struct seen seen = { 0 };

	(void)state;
	CHECK(zero_threads_open(4, 1, &threads) == 0);
	zero_threads_run(threads, 4, note_part, &seen);
	for (int p = 1; p < 4; p++) {
		int64_t until = t_now_ms() + T_PATIENCE * 1000 / 4;

		while (state_of(seen.thread[p]) != 'S' && t_now_ms() < until)
			usleep(1000);
		CHECK(state_of(seen.thread[p]) == 'S');
	}
	zero_threads_close(threads);
}

/* ---- Failures -------------------------------------------------------------------------------- */

static int count_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	int n = 0;

	CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Threads that were joined may still be listed for a moment. */
static void check_threads(int want)
{
	int64_t until = t_now_ms() + T_PATIENCE * 1000 / 4;

	while (count_threads() != want && t_now_ms() < until)
		usleep(1000);
	CHECK(count_threads() == want);
}

/* Each allocation and each start of one of n threads fails once; what was started before is gone
 * again. */
static void sweep(int n)
{
	int threads_failed = 0, memory_failed = 0, before = count_threads();
	bool came = true;

	for (long k = 1; came; k++) {
		struct zero_threads *threads = THERE;
		long live = t_live;
		int rc;

		t_countdown = k;
		rc = zero_threads_open(n, 1, &threads);
		came = t_countdown == 0;
		t_countdown = 0;
		CHECK((threads == NULL) == (rc < 0));
		if (rc < 0) {
			CHECK(came && kolo_last_error()[0] != 0);
			CHECK(rc == KOLO_ESYS || rc == KOLO_ENOMEM);
			threads_failed += rc == KOLO_ESYS;
			memory_failed += rc == KOLO_ENOMEM;
		}
		zero_threads_close(threads);
		CHECK(t_live == live);
		check_threads(before);
	}
	CHECK(threads_failed == n - 1 && memory_failed >= 2);
}

static void a_thread_that_cannot_start_leaves_nothing_behind(void **state)
{
	(void)state;
	t_is_rank = true;
	open_pools(); /* the first thread of a process may bring a sanitizer's own, which stays */
	close_pools();
	sweep(2);
	sweep(kolo_cores(NULL, 0) + 2); /* not bound */
	t_is_rank = false;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(casts_have_the_bits_of_the_definition),
	cmocka_unit_test(sums_and_squares_have_the_bits_of_the_definition),
	cmocka_unit_test(updates_have_the_bits_of_the_definition),
	cmocka_unit_test(copies_keep_every_bit),
	cmocka_unit_test(one_bad_value_anywhere_is_noticed),
	cmocka_unit_test(squares_of_parts_in_whole_blocks_are_those_of_the_whole),
	cmocka_unit_test(each_part_is_done_once_and_on_its_thread),
	cmocka_unit_test(a_thread_has_the_same_parts_in_every_run),
	cmocka_unit_test(without_threads_the_caller_does_all),
	cmocka_unit_test(the_default_is_a_share_of_the_cores),
	cmocka_unit_test(threads_are_bound_where_there_are_cores_for_all),
	cmocka_unit_test(a_worker_makes_room_for_the_caller),
	cmocka_unit_test(threads_get_no_signals),
	cmocka_unit_test(idle_threads_sleep),
	cmocka_unit_test(a_thread_that_cannot_start_leaves_nothing_behind),
};

T_MAIN(tests)
