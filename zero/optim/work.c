/* Work in host memory (zero_work_run). A thread has whole blocks of KOLO_ZERO_BLOCK elements. It
 * goes through them in pieces that stay in the first-level cache from loop to loop: gradients
 * become floats, the update is made, parameters are written. So each byte in memory is read and
 * written once. */
#include "zero/optim/work.h"

#include "zero/base/basics.h"
#include "zero/base/threads.h"
#include "zero/optim/kernels.h"
#include "zero/optimizers/list.h"

#include <string.h>

enum {
	/* Elements; divides KOLO_ZERO_BLOCK. With parameters of 16 bits AdamW takes 1.1 times as
	 * long with 1024, and 1.5 times with 4096: a core waits for memory in the first loop over a
	 * piece, and does nothing else meanwhile. */
	PIECE = 256,
	/* The caller does fewer elements alone: it updates this many in the 5 to 30 us in which
	 * another thread wakes up. */
	ALONE = 64 * 1024,
};

/* Work as the threads see it. */
struct job {
	const struct zero_kernels *kernels;
	const struct kolo_zero_work *work;
	int nparts;
};

static const void *from_at(const struct kolo_zero_work *w, size_t i)
{
	return (const char *)w->from + i * kolo_type_size(w->from_type);
}

static void *to_at(const struct kolo_zero_work *w, size_t i)
{
	return (char *)w->to + i * kolo_type_size(w->to_type);
}

static float *moment_at(const struct kolo_zero_work *w, int moment, size_t i)
{
	return w->moment[moment] ? w->moment[moment] + i : NULL;
}

/* Returns from[i] times factor as n floats. They stay in place if nothing changes; else they are in
 * `room`, which holds PIECE. */
static const float *load(const struct kolo_zero_work *w, size_t i, size_t n, float factor,
			 float *room)
{
	if (w->from_type == KOLO_F32 && factor == 1)
		return from_at(w, i);
	kolo_cast(from_at(w, i), w->from_type, room, KOLO_F32, n, factor);
	return room;
}

/* Notes whether n elements from number i on are all finite. */
static void look(const struct job *job, size_t i, size_t n)
{
	const struct kolo_zero_work *w = job->work;
	bool finite;

	if (!w->bad)
		return;
	if (w->from_type == KOLO_F32)
		finite = job->kernels->finite_32(from_at(w, i), n);
	else
		finite = job->kernels->finite_16(from_at(w, i), n,
						 w->from_type == KOLO_F16 ? 0x7c00 : 0x7f80);
	/* Several threads may write the same 1. The end of zero_threads_run makes it visible. */
	if (!finite)
		__atomic_store_n(w->bad, 1, __ATOMIC_RELAXED);
}

/* ---- Each kind, for n elements from number i on, at most PIECE of one block ------------------ */

static void cast(const struct job *job, size_t i, size_t n)
{
	const struct kolo_zero_work *w = job->work;

	look(job, i, n);
	/* A multiplication would change bits of a NaN. */
	if (w->from_type == w->to_type && w->factor == 1)
		memcpy(to_at(w, i), from_at(w, i), n * kolo_type_size(w->to_type));
	else
		kolo_cast(from_at(w, i), w->from_type, to_at(w, i), w->to_type, n, w->factor);
}

static void add(const struct job *job, size_t i, size_t n)
{
	const struct kolo_zero_work *w = job->work;
	float room[PIECE];

	look(job, i, n);
	job->kernels->add((float *)w->to + i, load(w, i, n, w->factor, room), n);
}

static void clear(const struct job *job, size_t i, size_t n)
{
	memset(to_at(job->work, i), 0, n * kolo_type_size(job->work->to_type));
}

static void update(const struct job *job, size_t i, size_t n)
{
	const struct kolo_zero_work *w = job->work;
	bool reads = !zero_optimizer_has_ratios(w->optimizer);
	float room[PIECE];

	job->kernels->update[w->optimizer](w->master + i, moment_at(w, 0, i), moment_at(w, 1, i),
					   reads ? load(w, i, n, w->factor, room) : NULL, n,
					   &w->scalars);
	if (w->to)
		kolo_cast(w->master + i, KOLO_F32, to_at(w, i), w->to_type, n, 1);
}

/* ---- Each kind, for one block ---------------------------------------------------------------- */

static void squares(const struct job *job, size_t i, size_t n)
{
	struct zero_lanes lanes = { { 0 } };
	float room[PIECE];

	for (size_t at = i; at < i + n; at += PIECE) {
		size_t m = zero_min(PIECE, i + n - at);

		job->kernels->add_squares(&lanes, load(job->work, at, m, 1, room), m);
	}
	job->work->sums[i / KOLO_ZERO_BLOCK] = zero_lanes_sum(&lanes);
}

static void digits(const struct job *job, size_t i, size_t n)
{
	double *sums = job->work->sums + ZERO_BLOCK_DIGITS * (i / KOLO_ZERO_BLOCK);
	struct zero_squares own = zero_squares_none();
	float room[PIECE];

	for (size_t at = i; at < i + n; at += PIECE) {
		size_t m = zero_min(PIECE, i + n - at);

		job->kernels->squares(&own, load(job->work, at, m, 1, room), m);
	}
	for (int l = 0; l < ZERO_LEVELS; l++)
		sums[l] = (double)own.digits[l];
	sums[ZERO_LEVELS] = (double)own.level;
}

static void lamb(const struct job *job, size_t i, size_t n)
{
	const struct kolo_zero_work *w = job->work;
	struct zero_lanes p2 = { { 0 } }, u2 = { { 0 } };
	double *sums = w->sums + 2 * (i / KOLO_ZERO_BLOCK);
	float room[PIECE];

	for (size_t at = i; at < i + n; at += PIECE) {
		size_t m = zero_min(PIECE, i + n - at);

		job->kernels->lamb_moments(w->master + at, moment_at(w, 0, at), moment_at(w, 1, at),
					   load(w, at, m, w->factor, room), m, &w->scalars, &p2,
					   &u2);
	}
	sums[0] = zero_lanes_sum(&p2);
	sums[1] = zero_lanes_sum(&u2);
}

/* ---- All ------------------------------------------------------------------------------------- */

static const struct {
	void (*run)(const struct job *job, size_t i, size_t n);
	size_t step; /* elements in one call at most */
} kinds[] = {
	[KOLO_ZERO_WORK_CAST] = { cast, PIECE },
	[KOLO_ZERO_WORK_ADD] = { add, PIECE },
	[KOLO_ZERO_WORK_CLEAR] = { clear, SIZE_MAX },
	[KOLO_ZERO_WORK_SQUARES] = { squares, KOLO_ZERO_BLOCK },
	[KOLO_ZERO_WORK_UPDATE] = { update, PIECE },
	[KOLO_ZERO_WORK_LAMB] = { lamb, KOLO_ZERO_BLOCK },
	[KOLO_ZERO_WORK_DIGITS] = { digits, KOLO_ZERO_BLOCK },
};

/* The first element of a part. Parts have equal numbers of blocks, as far as possible. */
static size_t part_begin(size_t n, int nparts, int part)
{
	size_t nblocks = zero_blocks(n), parts = (size_t)nparts, p = (size_t)part;
	size_t block = nblocks / parts * p + zero_min(p, nblocks % parts);

	return zero_min(block * KOLO_ZERO_BLOCK, n);
}

static int parts_of(const struct zero_threads *threads, size_t n)
{
	return n < ALONE ? 1 : zero_threads_count(threads);
}

static void run_part(void *arg, int part)
{
	const struct job *job = arg;
	size_t end = part_begin(job->work->n, job->nparts, part + 1);
	size_t step = kinds[job->work->kind].step;

	for (size_t i = part_begin(job->work->n, job->nparts, part), n; i < end; i += n) {
		n = zero_min(step, end - i);
		kinds[job->work->kind].run(job, i, n);
	}
}

void zero_work_run(struct zero_threads *threads, const struct zero_kernels *kernels,
		   const struct kolo_zero_work *work)
{
	struct job job = { kernels, work, parts_of(threads, work->n) };

	zero_threads_run(threads, job.nparts, run_part, &job);
}

/* ---- Squares in any order -------------------------------------------------------------------- */

struct squaring {
	const struct zero_kernels *kernels;
	const char *from;
	enum kolo_type type;
	size_t n;
	int nparts;
	pthread_mutex_t lock; /* of sum */
	struct zero_squares *sum;
};

static void square_part(void *arg, int part)
{
	struct squaring *s = arg;
	size_t end = part_begin(s->n, s->nparts, part + 1), size = kolo_type_size(s->type);
	struct zero_squares own = zero_squares_none();
	float room[KOLO_ZERO_BLOCK];

	for (size_t i = part_begin(s->n, s->nparts, part), n; i < end; i += n) {
		const char *from = s->from + i * size;

		n = zero_min(KOLO_ZERO_BLOCK, end - i);
		if (s->type != KOLO_F32) {
			kolo_cast(from, s->type, room, KOLO_F32, n, 1);
			from = (const char *)room;
		}
		s->kernels->squares(&own, (const float *)(const void *)from, n);
	}
	pthread_mutex_lock(&s->lock);
	zero_squares_add(s->sum, &own);
	pthread_mutex_unlock(&s->lock);
}

void zero_work_squares(struct zero_threads *threads, const struct zero_kernels *kernels,
		       const void *from, enum kolo_type type, size_t n, struct zero_squares *sum)
{
	struct squaring s = { .kernels = kernels,
			      .from = from,
			      .type = type,
			      .n = n,
			      .nparts = parts_of(threads, n),
			      .lock = PTHREAD_MUTEX_INITIALIZER,
			      .sum = sum };

	zero_threads_run(threads, s.nparts, square_part, &s);
}
