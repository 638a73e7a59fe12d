/* How fast AdamW updates in host memory, beside a triad (a[i] = b[i] + s c[i] of doubles, as STREAM
 * has it) in arrays of as many bytes, on the same threads, in the same rounds. The bytes that an
 * update has to move are 28 for each parameter: of floats with their gradients p, m, v, g read and
 * p, m, v written; of bf16 with masters 2 more written and 2 less read. STREAM counts 24 for an
 * element of the triad. Medians of interleaved rounds; of the triads that the compiler makes of one
 * loop, plain and AVX, the fastest. Memory has huge pages, and is touched first by who works on it,
 * as the engine's is.
 *
 * usage: zero_adam [THREADS [MIB]]   this number of threads instead of 1 and 2; MIB times 2^20
 * parameters instead of 32 */
#include "perf/perf.h"

#include "zero/base/memory.h"
#include "zero/base/threads.h"
#include "zero/optim/kernels.h"
#include "zero/optim/optimizer.h"
#include "zero/optim/work.h"

#include <stdio.h>
#include <string.h>

enum { NTRIADS = 3, NUPDATES = 2, UPDATE_BYTES = 28, TRIAD_BYTES = 24 };

/* ---- The triad ------------------------------------------------------------------------------- */

typedef void triad_fn(double *restrict a, const double *restrict b, const double *restrict c,
		      size_t n);

static inline __attribute__((always_inline)) void triad(double *restrict a,
							const double *restrict b,
							const double *restrict c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		a[i] = b[i] + 3.0 * c[i];
}

static void triad_plain(double *restrict a, const double *restrict b, const double *restrict c,
			size_t n)
{
	triad(a, b, c, n);
}

#ifdef KO_HAVE_X86_KERNELS
__attribute__((target("avx2"))) static void triad_avx2(double *restrict a, const double *restrict b,
						       const double *restrict c, size_t n)
{
	triad(a, b, c, n);
}

__attribute__((target("avx512f"))) static void triad_avx512(double *restrict a,
							    const double *restrict b,
							    const double *restrict c, size_t n)
{
	triad(a, b, c, n);
}
#endif

static triad_fn *triad_of(int i)
{
#ifdef KO_HAVE_X86_KERNELS
	if (i == 1 && __builtin_cpu_supports("avx2"))
		return triad_avx2;
	if (i == 2 && __builtin_cpu_supports("avx512f"))
		return triad_avx512;
#endif
	return i == 0 ? triad_plain : NULL;
}

struct triad_job {
	triad_fn *fn;
	double *a, *b, *c;
	size_t n;
	int nparts;
};

static void triad_part(void *arg, int part)
{
	const struct triad_job *t = arg;
	size_t first = t->n * (size_t)part / (size_t)t->nparts;
	size_t end = t->n * ((size_t)part + 1) / (size_t)t->nparts;

	t->fn(t->a + first, t->b + first, t->c + first, end - first);
}

/* ---- Both ------------------------------------------------------------------------------------ */

struct arrays {
	size_t n;
	float *p, *m, *v, *g;
	uint16_t *narrow_g, *narrow_p;
	double *triad[3]; /* of n / 2 */
};

static void check(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "zero_adam: %s\n", kolo_last_error());
	exit(1);
}

static void take(struct arrays *a, struct zero_arena *arena)
{
	size_t bytes = a->n * sizeof(float);

	a->p = zero_arena_take(arena, bytes);
	a->m = zero_arena_take(arena, bytes);
	a->v = zero_arena_take(arena, bytes);
	a->g = zero_arena_take(arena, bytes);
	for (int i = 0; i < 3; i++)
		a->triad[i] = zero_arena_take(arena, bytes);
	a->narrow_g = zero_arena_take(arena, bytes / 2);
	a->narrow_p = zero_arena_take(arena, bytes / 2);
}

static void clear(struct zero_threads *threads, const struct arrays *a)
{
	float *const all[] = { a->p,
			       a->m,
			       a->v,
			       a->g,
			       (float *)a->triad[0],
			       (float *)a->triad[1],
			       (float *)a->triad[2] };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		zero_work_run(threads, zero_kernels_best(),
			      &(struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_CLEAR,
							.n = a->n,
							.to = all[i],
							.to_type = KOLO_F32 });
}

static double run_triad(struct zero_threads *threads, const struct arrays *a, triad_fn *fn)
{
	struct triad_job job = { fn,          a->triad[0], a->triad[1],
				 a->triad[2], a->n / 2,    zero_threads_count(threads) };
	int64_t begin = ko_now_ns();

	zero_threads_run(threads, job.nparts, triad_part, &job);
	return (double)(ko_now_ns() - begin);
}

static double run_update(struct zero_threads *threads, const struct arrays *a, bool narrow)
{
	struct kolo_zero_work w = {
		.kind = KOLO_ZERO_WORK_UPDATE,
		.n = a->n,
		.from = narrow ? (void *)a->narrow_g : a->g,
		.from_type = narrow ? KOLO_BF16 : KOLO_F32,
		.to = narrow ? a->narrow_p : NULL,
		.to_type = KOLO_BF16,
		.factor = 0.5f,
		.optimizer = KOLO_ZERO_ADAMW,
		.master = a->p,
		.moment = { a->m, a->v },
	};
	struct kolo_zero_group group;
	int64_t begin;

	kolo_zero_group_init(&group, KOLO_ZERO_ADAMW);
	w.scalars = zero_optimizer_scalars(KOLO_ZERO_ADAMW, &group, 10);
	begin = ko_now_ns();
	zero_work_run(threads, zero_kernels_best(), &w);
	return (double)(ko_now_ns() - begin);
}

static void measure(int nthreads, struct arrays *a)
{
	static const char *const names[NUPDATES] = { "f32", "bf16" };
	double triads[NTRIADS][PERF_ROUNDS], updates[NUPDATES][PERF_ROUNDS], best = 0;
	struct zero_threads *threads;
	struct zero_arena arena = { 0 };

	check(zero_threads_open(nthreads, 1, &threads));
	take(a, &arena);
	check(zero_arena_open(&arena, "arrays", NULL));
	take(a, &arena);
	clear(threads, a);
	for (size_t i = 0; i < a->n; i++)
		a->g[i] = (float)(i * 2654435761u % 2001) / 1000 - 1;
	check(kolo_cast(a->g, KOLO_F32, a->narrow_g, KOLO_BF16, a->n, 1));
	for (int round = -1; round < PERF_ROUNDS; round++) {
		int k = round < 0 ? 0 : round; /* the first one is not counted */

		for (int i = 0; i < NTRIADS; i++)
			triads[i][k] = triad_of(i) ? run_triad(threads, a, triad_of(i)) : 0;
		for (int i = 0; i < NUPDATES; i++)
			updates[i][k] = run_update(threads, a, i == 1);
	}
	for (int i = 0; i < NTRIADS; i++) {
		double ns = perf_median(triads[i], PERF_ROUNDS);
		double rate = ns > 0 ? (double)(a->n / 2) * TRIAD_BYTES / ns : 0;

		best = rate > best ? rate : best;
	}
	for (int i = 0; i < NUPDATES; i++) {
		double ns = perf_median(updates[i], PERF_ROUNDS),
		       rate = (double)a->n * UPDATE_BYTES / ns;

		printf("  %7d  %-5s %8.2f %8.1f %8.1f %8.2f\n", nthreads, names[i], ns * 1e-6, rate,
		       best, rate / best);
	}
	fflush(stdout);
	zero_arena_close(&arena);
	zero_threads_close(threads);
}

int main(int argc, char **argv)
{
	int first = argc > 1 ? atoi(argv[1]) : 1, last = argc > 1 ? first : 2;
	struct arrays a = { .n = (size_t)(argc > 2 ? atoi(argv[2]) : 32) << 20 };

	if (first < 1 || a.n == 0 || argc > 3) {
		fprintf(stderr, "usage: zero_adam [THREADS [MIB]]\n");
		return 1;
	}
	printf("# AdamW on %zu parameters, median of %d rounds\n"
	       "# threads  types       ms     GB/s    triad of triad\n",
	       a.n, PERF_ROUNDS);
	for (int n = first; n <= last; n++)
		measure(n, &a);
	return 0;
}
